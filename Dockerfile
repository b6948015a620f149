# Lakesweep: the service, its command line and, on Kubernetes, its Spark executors, all from one image.
#
#   docker build --tag lakesweep .
#   docker run --rm --read-only --tmpfs /tmp lakesweep demo
#   docker run --read-only --tmpfs /tmp -v lakesweep:/var/lib/lakesweep -v "$PWD/lakesweep.toml:/etc/lakesweep/lakesweep.toml:ro" lakesweep
#
# It runs as user 10001 and writes to /var/lib/lakesweep and /tmp only.

# The one thing here that a registry may change: a tag. Whoever builds for others pins it by its digest, here or with
# --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:… (deploy/README.md says how to find it).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY build.lock requirements.lock ./
# Every package is held to its digest, the one that builds the others too. So nothing else may be fetched for a build.
RUN python -m venv tools \
    && tools/bin/pip install --require-hashes --requirement build.lock \
    && tools/bin/pip wheel --no-build-isolation --require-hashes --requirement requirements.lock --wheel-dir wheels
COPY pyproject.toml README.md LICENSE ./
COPY service service
RUN tools/bin/pip wheel --no-build-isolation --no-deps --wheel-dir wheels . \
    && python -m venv --without-pip /opt/lakesweep \
    && tools/bin/pip --python /opt/lakesweep/bin/python install --no-index --no-deps wheels/*.whl

FROM ${PYTHON_IMAGE}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 lakesweep \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/lakesweep --create-home --shell /usr/sbin/nologin lakesweep
COPY --from=build /opt/lakesweep /opt/lakesweep
COPY deploy/image/entrypoint.sh /opt/entrypoint.sh

# XDG_STATE_HOME makes /var/lib/lakesweep the default of service.data_dir; a settings file can still say otherwise.
# HEALTH_URL has to follow metrics.listen if that is given another port.
ENV PATH=/opt/lakesweep/bin:$PATH \
    HOME=/var/lib/lakesweep \
    XDG_STATE_HOME=/var/lib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HEALTH_URL=http://127.0.0.1:9464/healthz
WORKDIR /var/lib/lakesweep
USER 10001:10001
VOLUME ["/var/lib/lakesweep", "/tmp"]
EXPOSE 8484 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["/opt/lakesweep/bin/python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['HEALTH_URL'], timeout=8)"]
# tini reaps what Spark leaves behind, and hands signals to Lakesweep alone, which stops the rest itself.
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/entrypoint.sh"]
CMD ["serve"]

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Lakesweep" \
      org.opencontainers.image.description="Expires snapshots of lakehouse tables, then deletes what no snapshot references." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
