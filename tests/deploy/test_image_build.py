"""The Dockerfile's own steps, followed in a fresh Debian: what comes out cleans a lake, read-only and as its own user.

A minimal Debian with Python and its headers stands for the base image. It takes minutes, since it fetches and builds
everything anew.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.builders.image import DOCKERFILE, LAST
from tests.deploy import dockerfile
from tests.deploy.container import WRITABLE, Container, existing, need_overlays
from tests.deploy.tools import REPOSITORY, CannotBeHad, fetched, must

import lakesweep

pytestmark = pytest.mark.timeout(3600)

_CERTIFICATES = "/mnt/certificates"


def outside():
    """How this machine reaches package registries: names, pip's settings, the authorities it trusts."""
    trusted = (os.environ.get("PIP_CERT"), os.environ.get("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt")
    bundle = next((Path(path) for path in trusted if path and Path(path).is_file()), None)
    found = existing(["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"])
    return found | ({bundle: _CERTIFICATES} if bundle else {})


def debian(work):
    program = shutil.which("debootstrap")
    if program is None:
        raise CannotBeHad("debootstrap is not installed")
    must(program, "--variant=minbase", "--include=python3,python3-venv,python3-dev,ca-certificates", "bookworm", work)
    (work / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    work.chmod(0o755)


@pytest.fixture
def places(tmp_path):
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)  # some gigabytes


@pytest.mark.soak  # three minutes and some gigabytes; test_image runs what the image runs
def test_what_the_dockerfile_builds_cleans_a_lake(places):
    need_overlays(places / "tried")
    base = fetched("debian", "bookworm-with-headers", debian)
    built = {}
    for number, stage in enumerate(dockerfile.read(DOCKERFILE)):
        root = places / str(number)
        follow(stage, Container(root=root, lower=base, binds=outside(), read_only=False), built)
        built[stage.name] = root

    # Java asks for the machine's own name, which every container runtime writes into this file.
    image = Container(root=built[None], lower=base, binds=existing(["/etc/hosts"]), tmpfs=WRITABLE)
    shown = inside(image, *LAST.words("ENTRYPOINT"), "--version")
    assert (shown.returncode, shown.stdout.split()[-1]) == (0, lakesweep.__version__), shown.stderr
    demo = inside(image, *LAST.words("ENTRYPOINT"), "demo")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "spark" in demo.stdout
    for tool in ("gcc", "make", "pip", "curl"):
        assert inside(image, "/bin/sh", "-c", f"command -v {tool}").returncode != 0, tool


def inside(image, *command):
    return image.run(*command, environment=LAST.environment, user=LAST.user, directory=LAST.last("WORKDIR"))


def follow(stage, container, built):
    """Do what the steps of a stage say, one after another."""
    directory = "/"
    upper = container.root / "upper"
    for instruction, rest in stage.steps:
        if instruction == "WORKDIR":
            directory = rest
            (upper / directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "RUN":
            variables = stage.environment | {"PIP_CERT": _CERTIFICATES, "DEBIAN_FRONTEND": "noninteractive"}
            done = container.run("/bin/sh", "-c", rest, environment=variables, directory=directory)
            assert done.returncode == 0, f"{rest}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        elif instruction == "COPY":
            (copy,) = dockerfile.copies(dockerfile.Stage(name=None, steps=[(instruction, rest)]))
            origin, sources, target = copy
            place = upper / directory.lstrip("/") / target if not target.startswith("/") else upper / target[1:]
            for source in sources:
                put((built[origin] / "upper" if origin else REPOSITORY) / source.lstrip("/"), place)


def put(source, place):
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
