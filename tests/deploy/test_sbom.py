"""The bill of materials: valid CycloneDX, complete, and the same wherever it is made."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import jsonschema_rs
import pytest
from tests.deploy.tools import DEPLOY, REPOSITORY, cyclonedx_schemas

import lakesweep


@pytest.fixture(scope="module")
def bill():
    return json.loads(printed())


def printed():
    return subprocess.run([sys.executable, DEPLOY / "sbom.py"], capture_output=True, text=True, check=True).stdout


def test_the_bill_is_valid_by_cyclonedx_own_schema(bill):
    schemas = cyclonedx_schemas()
    known = [
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", schemas[name]) for name in ("spdx", "jsf-0.82")
    ]
    checker = jsonschema_rs.validator_for(schemas["bom-1.6"], registry=jsonschema_rs.Registry(known))
    assert [fault.message for fault in checker.iter_errors(bill)] == []
    broken = {**bill, "components": [{**bill["components"][0], "type": "thing"}]}
    assert not checker.is_valid(broken)


def test_every_locked_package_is_in_it_with_its_digests(bill):
    for lock, scope in (("requirements.lock", "required"), ("build.lock", "excluded")):
        text = (REPOSITORY / lock).read_text()
        pins = re.findall(r"^([\w.\-]+)(?:\[.*?\])?==(\S+)", text, re.M)
        held = {(one["name"], one["version"]) for one in bill["components"]}
        assert pins
        assert {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in pins} <= held
        assert any(one["scope"] == scope for one in bill["components"])
    digests = {one["content"] for part in bill["components"] for one in part["externalReferences"][0]["hashes"]}
    locked = (REPOSITORY / "requirements.lock").read_text() + (REPOSITORY / "build.lock").read_text()
    assert digests == set(re.findall(r"sha256:([0-9a-f]{64})", locked))
    assert all(part["externalReferences"][0]["hashes"] for part in bill["components"])


def test_the_bill_is_of_this_version_and_says_who_needs_whom(bill):
    subject = bill["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("lakesweep", lakesweep.__version__)
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert any(one.startswith("pkg:pypi/pyarrow@") for one in needs[subject["bom-ref"]])
    refs = {one["bom-ref"] for one in bill["components"]} | {subject["bom-ref"]}
    assert needs.keys() == refs
    assert {one for wanted in needs.values() for one in wanted} <= refs


def test_the_bill_is_the_same_each_time_it_is_made(bill):
    assert json.loads(printed()) == bill
