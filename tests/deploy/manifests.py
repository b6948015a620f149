"""Render manifests as a cluster would get them, and judge them by Kubernetes' own schemas."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema_rs
import yaml
from tests.deploy.tools import DEPLOY, custom_resources, helm, kubernetes_schemas, kustomize, run

from lakesweep.settings.load import load
from lakesweep.settings.schema import Settings

VERSIONS = ("1.25", "1.29", "1.33", "1.37")
CHART = DEPLOY / "helm" / "lakesweep"
OVERLAYS = DEPLOY / "kubernetes" / "overlays"
_SCHEMAS = "kubernetes_validate/kubernetes-json-schema"

Manifest = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One way of deploying, as a list of resources."""

    name: str
    manifests: tuple[Manifest, ...]

    def all(self, kind: str) -> list[Manifest]:
        """The resources of a kind."""
        return [one for one in self.manifests if one["kind"] == kind]

    @property
    def deployment(self) -> Manifest:
        """There is one only."""
        (found,) = self.all("Deployment")
        return found

    @property
    def pod(self) -> Manifest:
        """Its pods' spec."""
        spec: Manifest = self.deployment["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        """Lakesweep's container."""
        return next(one for one in self.pod["containers"] if one["name"] == "lakesweep")

    @property
    def files(self) -> dict[str, str]:
        """What is mounted at /etc/lakesweep."""
        (volume,) = [one for one in self.pod["volumes"] if one["name"] == "settings"]
        wanted = volume["configMap"]["name"]
        (found,) = [one for one in self.all("ConfigMap") if one["metadata"]["name"] == wanted]
        data: dict[str, str] = found["data"]
        return data

    def settings(self, directory: Path) -> Settings:
        """What our own code makes of the mounted file and the container's variables."""
        file = directory / "lakesweep.toml"
        file.write_text(self.files["lakesweep.toml"])
        with variables(_environment(self.container)):
            return load(file)


def names() -> list[str]:
    """Every way of deploying that we ship: the overlays, and the chart with its default and its example values."""
    overlays = [f"kustomize {path.parent.name}" for path in OVERLAYS.glob("*/kustomization.yaml")]
    examples = [f"helm {path.stem}" for path in (CHART / "examples").glob("*.yaml")]
    return sorted([*overlays, "helm defaults", *examples])


@functools.cache
def render(name: str) -> Rendered:
    """One of `names`."""
    program, _, which = name.partition(" ")
    if program == "kustomize":
        return Rendered(name=name, manifests=_documents(kustomize(), "build", OVERLAYS / which))
    values = () if which == "defaults" else ("--values", CHART / "examples" / f"{which}.yaml")
    return templated(*values, name=name)


def templated(*values: str | Path, name: str = "helm") -> Rendered:
    """The chart with some values."""
    rendering = (helm(), "template", "lake", CHART, "--namespace", "lakesweep")
    return Rendered(name=name, manifests=_documents(*rendering, *values))


def faults(manifest: Manifest, version: str) -> list[str]:
    """What Kubernetes of that version would not take."""
    kind = (manifest.get("apiVersion", ""), manifest.get("kind", ""))
    kinds = _custom_kinds() if kind[0].startswith("monitoring.coreos.com/") else _kinds(version)
    checker = kinds.get(kind)
    if checker is None:
        return [f"Kubernetes {version} knows no {kind[1]} of {kind[0]}"]
    named = f"{manifest['kind']} {manifest['metadata'].get('name')}"
    return [
        f"{named}: {'.'.join(map(str, fault.instance_path))}: {fault.message}"
        for fault in checker.iter_errors(manifest)
    ]


@contextmanager
def variables(environment: Mapping[str, str]) -> Iterator[None]:
    """Only these settings in the environment."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("LAKESWEEP_")}
    with mock.patch.dict(os.environ, {**others, **environment}, clear=True):
        yield


def _environment(container: Manifest) -> dict[str, str]:
    """The container's own settings. Secrets and addresses are stood in for; $(NAME) is filled in as Kubernetes does."""
    known = {"LAKESWEEP_STATE__URL": "postgresql://user:secret@db/lakesweep", "POD_IP": "10.0.0.1", "POD_NAME": "pod-1"}
    given: dict[str, str] = {}
    for one in container.get("env", []):
        text = one.get("value", known.get(one["name"], ""))
        for name, value in given.items():
            text = text.replace(f"$({name})", value)
        given[one["name"]] = text
    return {name: value for name, value in given.items() if name.startswith("LAKESWEEP_")}


def _documents(*command: str | Path) -> tuple[Manifest, ...]:
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return tuple(one for one in yaml.safe_load_all(done.stdout) if one)


@functools.cache
def _kinds(version: str) -> dict[tuple[str, str], jsonschema_rs.Validator]:
    """By apiVersion and kind."""
    found = {}
    with kubernetes_schemas() as schemas:
        document = json.loads(schemas.read(f"{_SCHEMAS}/v{version}.0-local-strict/_definitions.json"))
    for name, definition in document["$defs"].items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            api_version = "/".join(part for part in (kind["group"], kind["version"]) if part)
            if (api_version, kind["kind"]) in _USED:
                schema = {**document, "$ref": f"#/$defs/{name}"}
                found[api_version, kind["kind"]] = jsonschema_rs.validator_for(schema)
    return found


_USED = {
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("v1", "ConfigMap"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("apps/v1", "Deployment"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
}


@functools.cache
def _custom_kinds() -> dict[tuple[str, str], jsonschema_rs.Validator]:
    found = {}
    for plural in ("servicemonitors", "prometheusrules"):
        text = (custom_resources() / f"monitoring.coreos.com_{plural}.yaml").read_text()
        definition = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]
        kind = definition["names"]["kind"]
        for version in definition["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            found[f"{definition['group']}/{version['name']}", kind] = jsonschema_rs.validator_for(schema)
    return found


def _strict(schema: Any) -> Any:
    """The same schema, with unknown fields as faults: a server drops them in silence."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _strict(one) for name, one in schema.items()}
    if "properties" in inner and inner.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner
