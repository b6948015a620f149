"""Nothing that we build or run floats: images have exact versions, packages have digests, and one place is left open.

That place is PYTHON_IMAGE in the Dockerfile, which whoever builds with a registry at hand pins by its digest.
"""

from __future__ import annotations

import re

import pytest
import yaml
from tests.deploy import manifests
from tests.deploy.tools import DEPLOY, REPOSITORY
from tests.peers import jars

import lakesweep

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
OPEN_PLACE = "PYTHON_IMAGE"
EXACT = re.compile(r"[\w./-]+(:v?\d+\.\d+(\.\d+)?(-[a-z][\w.]*)*(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})")
EXAMPLE = "registry.example.com/"
"""Stands for a program of the reader's own."""
DEBIAN = {"gcc", "libc6-dev", "openjdk-17-jre-headless", "tini"}
"""From the release that the base image names, by Debian's own signatures."""
INSTALLERS = ("Dockerfile", "Makefile", ".ci/need", ".ci/run", "deploy/image/entrypoint.sh")


def commands(text):
    """The single commands of a shell script, a Makefile or a Dockerfile."""
    return [part.strip() for line in re.sub(r"\\\n", " ", text).splitlines() for part in re.split(r"&&|;|\|\|", line)]


def floating(command):
    """Does this take packages from an index that are not held to a digest?"""
    words = command.split("#")[0].split()
    pips = [at for at, word in enumerate(words) if re.search(r"(^|/)pip3?$", word)]
    if not pips or not {"install", "wheel", "download"} & set(words[pips[0] :]):
        return False
    given = set(words)
    ours_alone = "--no-deps" in given and "." in given and "--no-build-isolation" in given
    return not (ours_alone or "--require-hashes" in given or "--no-index" in given)


def test_one_place_alone_names_the_base_image():
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", DOCKERFILE, re.M)
    named = {name for _, name in stages if name}
    assert {source for source, _ in stages} <= {f"${{{OPEN_PLACE}}}", *named}
    assert set(re.findall(r"--from=(\S+)", DOCKERFILE)) <= named
    before = DOCKERFILE[: DOCKERFILE.index("FROM ")]
    (default,) = re.findall(r"^ARG (\w+=\S+)$", before, re.M)
    name, _, image = default.partition("=")
    assert name == OPEN_PLACE
    assert EXACT.fullmatch(image)
    assert "# syntax" not in DOCKERFILE  # which would be one more image
    assert f"`{OPEN_PLACE}`" in (DEPLOY / "README.md").read_text()


def test_no_file_is_fetched_past_the_package_managers():
    assert not re.search(r"^ADD |curl |wget |git clone", DOCKERFILE, re.M)


def test_debian_gives_only_what_is_known_here():
    lists = re.findall(r"apt-get install --yes --no-install-recommends ([^&\n\\]+)", DOCKERFILE)
    assert {name for names in lists for name in names.split()} == DEBIAN
    assert DOCKERFILE.count("apt-get install") == len(lists)


@pytest.mark.parametrize("name", INSTALLERS)
def test_every_package_that_is_installed_is_held_to_its_digest(name):
    assert [one for one in commands((REPOSITORY / name).read_text()) if floating(one)] == []


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("pip install lakesweep", True),
        ("tools/bin/pip wheel --requirement requirements.lock", True),
        ("RUN python -m pip install --upgrade pip", True),
        ("tools/bin/pip install --no-deps .", True),  # which fetches what it is built with
        ("pip install --require-hashes -r build.lock", False),
        ("$(BIN)/pip install --no-build-isolation --no-deps --editable .", False),
        ("pip install --no-index --no-deps wheels/*.whl", False),
        ("command -v pip", False),
    ],
)
def test_a_floating_install_is_noticed(command, wrong):
    assert floating(command) is wrong


@pytest.mark.parametrize(
    "name",
    [
        "requirements.lock",
        "build.lock",
        "dist.lock",
        "tests/requirements.lock",
        "tests/peers/pypaimon.lock",
        "tests/peers/flink.lock",
        "tests/peers/airflow.lock",
        "tests/peers/dagster.lock",
    ],
)
def test_every_line_of_a_lock_file_has_one_version_and_a_digest(name):
    joined = re.sub(r"\\\n\s*", "", (REPOSITORY / name).read_text())
    lines = [line for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert lines
    pinned = re.compile(r"[\w.\-]+(\[[\w,.\-]+\])?==[\w.!+]+( ?;[^#]*?)?( ?--hash=sha256:[0-9a-f]{64})+(\s*#.*)?\s*")
    assert [line[:80] for line in lines if not pinned.fullmatch(line)] == []


def test_images_of_the_example_have_exact_versions():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert [one["image"] for one in services.values() if not EXACT.fullmatch(one["image"])] == []


def test_images_of_the_overlays_have_exact_versions():
    """As they are written; what they render to is held to the code's version elsewhere."""
    found = []
    for path in (DEPLOY / "kubernetes").rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            found += [(path.name, image) for image in images(document)]
    named = {one for one in found if not one[1].startswith(EXAMPLE)}
    assert {image for _, image in named} == {"lakesweep", f"lakesweep:{lakesweep.__version__}"}


def images(node):
    """Every image that a manifest names, and what a kustomization makes of it."""
    if isinstance(node, dict):
        if isinstance(node.get("image"), str):
            yield node["image"]
        for one in node.get("images") or ():
            yield f"{one['newName']}:{one['newTag']}"
        for value in node.values():
            yield from images(value)
    elif isinstance(node, list):
        for value in node:
            yield from images(value)


def test_the_chart_can_be_held_to_a_digest():
    digest = f"sha256:{'a1' * 32}"
    rendered = manifests.templated("--set", f"image.digest={digest}")
    assert rendered.container["image"] == f"lakesweep:{lakesweep.__version__}@{digest}"
    chart = (DEPLOY / "helm/lakesweep/templates").glob("*")
    written = {
        line.strip() for path in chart for line in path.read_text().splitlines() if re.match(r"\s*image: ", line)
    }
    assert written == {'image: {{ include "lakesweep.image" . | quote }}'}


def test_every_jar_of_the_peers_is_held_to_its_digest():
    lines = (REPOSITORY / "tests/peers/jars.lock").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w-]+/[\w.-]+\.jar", line) for line in lines)
    assert {line.split()[1].partition("/")[0] for line in lines} == set(jars.SETS)


def test_a_jar_that_is_not_the_pinned_one_is_refused(tmp_path):
    (tmp_path / "paimon-bundle-1.4.2.jar").write_bytes(b"another")
    with pytest.raises(RuntimeError, match=r"jars.lock pins: paimon/paimon-bundle-1.4.2.jar"):
        jars.check("paimon", tmp_path)
