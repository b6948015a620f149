"""The image: what its Dockerfile says, and that its programs work read-only and without privileges.

There is no container engine here. What the last stage sets (user, variables, entry point, volumes, health check) is
taken from the Dockerfile and tried with this machine's programs behind a read-only root; the long version follows
the Dockerfile's own steps in a fresh Debian.
"""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request

import psutil
import pytest
from tests.builders.image import DOCKERFILE, LAST, STAGES
from tests.deploy import dockerfile
from tests.deploy.container import WRITABLE, Container, on_this_machine
from tests.deploy.tools import REPOSITORY, hadolint, run
from tests.peers.ports import free_port
from tests.peers.process import running

import lakesweep


@pytest.fixture
def image(tmp_path):
    """This machine's system and this environment, where the image has its own."""
    return on_this_machine(tmp_path)


def as_in_the_image(container, *arguments, **variables):
    """The entry point without tini, which only an image has."""
    return container.command(
        *LAST.words("ENTRYPOINT")[2:],
        *arguments,
        environment=LAST.environment | variables,
        user=LAST.user,
        directory=LAST.last("WORKDIR"),
    )


def test_hadolint_finds_nothing_wrong():
    checked = run(hadolint(), DOCKERFILE)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_hadolint_notices_a_fault(tmp_path):
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.read_text().replace("USER 10001:10001", "USER root"))
    checked = run(hadolint(), broken)
    assert checked.returncode != 0
    assert "DL3002" in checked.stdout


def test_everything_that_is_copied_is_there_and_let_through():
    let_through = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    for stage in STAGES:
        for origin, sources, _ in dockerfile.copies(stage):
            for source in sources if origin is None else ():
                assert (REPOSITORY / source).exists(), source
                assert any(source == name or source.startswith(f"{name}/") for name in let_through), source


def test_the_last_stage_keeps_what_the_image_promises():
    user, group = LAST.user
    assert min(user, group) >= 10_000
    assert set(LAST.words("VOLUME")) == set(WRITABLE)
    assert LAST.words("ENTRYPOINT")[:2] == ["/usr/bin/tini", "--"]
    assert LAST.words("CMD") == ["serve"]
    assert os.access(REPOSITORY / "deploy" / "image" / "entrypoint.sh", os.X_OK)
    assert "curl" not in LAST.last("HEALTHCHECK")
    assert f"VERSION={lakesweep.__version__}" in LAST.all("ARG")
    assert "pip" not in " ".join(LAST.all("RUN"))


def test_every_package_is_held_to_its_digest():
    installs = " ".join(STAGES[0].all("RUN"))
    assert installs.count("--require-hashes") == 2
    assert "--no-build-isolation" in installs
    lock = (REPOSITORY / "build.lock").read_text()
    assert "--hash=sha256:" in lock


def test_a_cycle_runs_read_only_as_an_ordinary_user(image):
    shown = subprocess.run(as_in_the_image(image, "--version"), capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout.split()[-1]) == (0, lakesweep.__version__), shown.stderr

    demo = subprocess.run(as_in_the_image(image, "demo"), capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "spark" in demo.stdout


def test_the_root_really_is_read_only_and_the_user_ordinary(image):
    tried = image.run(
        "/bin/sh",
        "-c",
        "id -u; touch /x; touch /opt/lakesweep/x; touch /tmp/x && touch /var/lib/lakesweep/x && echo writable",
        environment=LAST.environment,
        user=LAST.user,
    )
    assert tried.stdout.split() == ["10001", "writable"]
    assert tried.stderr.count("Read-only file system") == 2


def test_the_service_is_healthy_and_ends_well_when_requested(image, tmp_path):
    port = free_port()
    settings = tmp_path / "lakesweep.toml"
    settings.write_text(f'[admin]\nlisten = "127.0.0.1:{free_port()}"\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    variables = {"LAKESWEEP_CONFIG": "/settings/lakesweep.toml", "HEALTH_URL": f"http://127.0.0.1:{port}/healthz"}
    service = Container(root=image.root, binds={**image.binds, settings: variables["LAKESWEEP_CONFIG"]}, tmpfs=WRITABLE)
    command = as_in_the_image(service, *LAST.words("CMD"), **variables)
    with running(command, log=tmp_path / "log", ready=lambda: answers(variables["HEALTH_URL"])) as process:
        assert health(image, variables) == 0
        (inside,) = psutil.Process(process.pid).children()
        inside.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert health(image, variables) != 0


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=2).status == 200
    except OSError:
        return False


def health(container, variables):
    command = LAST.words("HEALTHCHECK")
    return container.run(*command, environment=LAST.environment | variables, user=LAST.user).returncode
