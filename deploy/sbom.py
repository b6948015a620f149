"""Print the software bill of materials of Lakesweep's Python packages: CycloneDX 1.6, from the lock files, offline.

    python deploy/sbom.py > sbom.cdx.json

Names, versions and digests are those of the lock files, so the answer does not depend on the machine. Licences and
who needs whom are taken from the packages that are installed here, as far as they are. The base image and Debian's
packages are not in it: `docker buildx build --sbom=true` lists those of a built image.
"""

# ruff: noqa: INP001  # a program by itself

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {"requirements.lock": "required", "build.lock": "excluded"}
"""Each with CycloneDX' term for it: what builds the packages is not part of what runs."""
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)
_DIGEST = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAMED = re.compile(r"^[A-Za-z0-9._-]+")


def bill() -> dict[str, Any]:
    """The document. The same lock files give the same one."""
    found = [part for lock, scope in LOCKS.items() for part in _locked((ROOT / lock).read_text(), scope)]
    parts = sorted({part["bom-ref"]: part for part in reversed(found)}.values(), key=lambda part: str(part["bom-ref"]))
    project = _project()
    identity = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([project, *parts], sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{identity}",
        "version": 1,
        "metadata": {"component": project, "lifecycles": [{"phase": "pre-build"}]},
        "components": parts,
        "dependencies": [{"ref": one["bom-ref"], "dependsOn": _needs(one, parts)} for one in (project, *parts)],
    }


def _project() -> dict[str, Any]:
    version = re.search(r'^__version__ = "([^"]+)"', (ROOT / "service/lakesweep/__init__.py").read_text(), re.MULTILINE)
    if version is None:
        raise SystemExit("service/lakesweep/__init__.py has no __version__")
    return {**_package("lakesweep", version[1]), "type": "application", "licenses": [{"license": {"id": "Apache-2.0"}}]}


def _package(name: str, version: str) -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


def _locked(text: str, scope: str) -> list[dict[str, Any]]:
    """Every package of a lock file, with the digests of all files that it may be installed from."""
    found = []
    pins = list(_PINNED.finditer(text))
    for pin, following in zip(pins, [*pins[1:], None], strict=True):
        name = _plain(pin[1])
        digests = _DIGEST.findall(text[pin.end() : following.start() if following else None])
        source = {
            "type": "distribution",
            "url": _package(name, pin[2])["purl"],  # which index it comes from is the installer's choice
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        }
        found.append({**_package(name, pin[2]), "scope": scope, **_licence(name), "externalReferences": [source]})
    return found


def _licence(name: str) -> dict[str, Any]:
    """As the package itself says, if it is installed and says it in SPDX' words."""
    try:
        said = metadata.metadata(name).get("License-Expression")
    except metadata.PackageNotFoundError:
        return {}
    return {"licenses": [{"expression": said}]} if said else {}


def _needs(component: dict[str, Any], parts: list[dict[str, Any]]) -> list[str]:
    """What a package asks for, extras left out. A package that is locked for two Pythons is there in both versions."""
    try:
        wanted = metadata.requires(component["name"]) or []
    except metadata.PackageNotFoundError:
        return []
    names = {_plain(named[0]) for line in wanted if "extra ==" not in line and (named := _NAMED.match(line))}
    return [part["bom-ref"] for part in parts if part["name"] in names - {component["name"]}]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
