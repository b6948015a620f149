"""The policies allow what our code asks of S3, below one root, and nothing else."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatchcase

import pytest
from tests.deploy.tools import DEPLOY, REPOSITORY

from lakesweep.audit import chain
from lakesweep.model.location import Location

CALLS = {
    "list_objects_v2": "s3:ListBucket",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "put_object": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "delete_objects": "s3:DeleteObject",
    "get_bucket_versioning": "s3:GetBucketVersioning",
    "get_bucket_lifecycle_configuration": "s3:GetLifecycleConfiguration",
    "get_object_tagging": "s3:GetObjectTagging",
    "copy_object": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "upload_part_copy": "s3:PutObject",
    "complete_multipart_upload": "s3:PutObject",
    "abort_multipart_upload": None,  # what is not aborted is left to a lifecycle rule
    "list_object_versions": None,  # for whoever restores in a bucket with versions, or counts them: a person's role
    "list_multipart_uploads": None,  # for `report --fresh`, likewise
    "list_parts": None,
    "list_buckets": None,  # for the Date header, which a refusal has too
}
"""What S3 wants for each of our requests."""
CHANGING = {"s3:PutObject", "s3:DeleteObject"}
OF_THE_BUCKET = {"s3:ListBucket", "s3:GetBucketVersioning", "s3:GetLifecycleConfiguration"}
POLICIES = sorted(path.stem for path in (DEPLOY / "iam").glob("*.json"))


def policy(name):
    text = (DEPLOY / "iam" / f"{name}.json").read_text()
    return json.loads(text.replace("${BUCKET}", "lake").replace("${PREFIX}", "acme"))


def actions(document):
    return {action for statement in document["Statement"] for action in actions_of(statement)}


def actions_of(statement):
    named = statement["Action"]
    return [named] if isinstance(named, str) else named


def allows(document, action, resource, prefix=None, *, create_only=False):
    """What AWS makes of a request, as far as these policies use the language."""
    return any(
        statement["Effect"] == "Allow"
        and action in actions_of(statement)
        and fnmatchcase(resource, statement["Resource"])
        and all(holds(*condition, prefix, create_only) for condition in statement.get("Condition", {}).items())
        for statement in document["Statement"]
    )


def holds(operator, wanted, prefix, create_only):
    if operator == "StringLikeIfExists":
        return prefix is None or fnmatchcase(prefix, wanted["s3:prefix"])
    assert (operator, wanted) == ("Null", {"s3:if-none-match": "false"})  # that is: the header must be there
    return create_only


def requests():
    """By class, the requests that our code sends through an S3 client."""
    found = {}
    for path in (REPOSITORY / "service/lakesweep/storage/s3").glob("*.py"):
        for owner in ast.walk(ast.parse(path.read_text())):
            if isinstance(owner, ast.ClassDef):
                for node in ast.walk(owner):
                    if (
                        isinstance(node, ast.Call)
                        and isinstance(node.func, ast.Attribute)
                        and isinstance(node.func.value, ast.Name)
                        and node.func.value.id == "client"
                    ):
                        found.setdefault(owner.name, set()).add(node.func.attr)
    return found


def test_every_request_that_we_send_is_known():
    sent = requests()
    assert {"S3Storage", "S3Writer", "S3Deleter"} <= sent.keys()
    assert set().union(*sent.values()) <= CALLS.keys()


def test_the_policies_allow_all_of_them_and_nothing_else():
    sent = {owner: {CALLS[call] for call in calls} - {None} for owner, calls in requests().items()}
    assert actions(policy("reader")) == sent["S3Storage"] | sent["S3Rules"]
    with_copies = {"s3:PutObjectTagging"}  # a copy has the tags of what it is copied from
    assert actions(policy("deleter")) == set().union(*sent.values()) | with_copies
    assert not actions(policy("reader")) & CHANGING


@pytest.mark.parametrize("name", ["reader", "deleter"])
def test_nothing_outside_the_root_is_allowed(name):
    document = policy(name)
    for action in actions(document) - OF_THE_BUCKET:
        assert allows(document, action, "arn:aws:s3:::lake/acme/orders/data/a.parquet")
        for outside in ("lake/acme2/a", "lake/acme", "lake/b/acme/a", "lake2/acme/a"):
            assert not allows(document, action, f"arn:aws:s3:::{outside}")
    for prefix in ("acme/", "acme/orders/"):
        assert allows(document, "s3:ListBucket", "arn:aws:s3:::lake", prefix)
    for prefix in ("", "acme", "acme2/", "b/"):
        assert not allows(document, "s3:ListBucket", "arn:aws:s3:::lake", prefix)


@pytest.mark.parametrize("name", ["reader", "deleter", "artifacts"])
def test_an_object_that_is_not_there_is_distinguished_from_a_forbidden_one(name):
    assert allows(policy(name), "s3:ListBucket", "arn:aws:s3:::lake", prefix=None)


OURS = "arn:aws:s3:::lake/acme"
"""The place that the policies are filled in with, as `service.artifacts` and as `service.audit_anchor`."""


def test_the_service_has_all_that_its_own_place_needs():
    document = policy("artifacts")
    sent = {
        owner: calls for owner, calls in requests().items() if owner in ("S3Storage", "S3Writer", "S3Deleter")
    }  # the others are asked of the lake alone
    assert actions(document) == set().union(*({CALLS[call] for call in calls} for calls in sent.values())) - {None}
    for kind in ("plans", "ledgers"):
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
            assert allows(document, action, f"{OURS}/{kind}/r1.parquet/2/0")
    assert allows(document, "s3:GetObject", f"{OURS}/audit/acme/prod/orders/0000000001.jsonl")


@pytest.mark.parametrize(("name", "place"), [("artifacts", f"{OURS}/audit/acme"), ("anchor", f"{OURS}/audit/acme")])
def test_the_audit_trail_and_its_anchor_can_only_grow(name, place):
    document = policy(name)
    assert allows(document, "s3:PutObject", f"{place}/0000000001.jsonl", create_only=True)
    assert not allows(document, "s3:PutObject", f"{place}/0000000001.jsonl", create_only=False)
    assert not allows(document, "s3:DeleteObject", f"{place}/0000000001.jsonl")


def test_the_anchor_gives_the_right_to_create_and_no_other():
    assert actions(policy("anchor")) == {"s3:PutObject"}
    assert all("Condition" in statement for statement in policy("anchor")["Statement"])


def test_every_write_of_the_audit_trail_is_one_that_the_policies_allow():
    writes = [
        {keyword.arg: keyword.value.value for keyword in node.keywords}
        for path in (REPOSITORY / "service/lakesweep/audit").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "put"
    ]
    assert len(writes) >= 3
    assert all(write == {"create_only": True} for write in writes)


def test_the_names_of_the_places_are_those_of_the_code():
    place = Location.parse("s3://lake/acme")
    trail = chain.segment_place(place, "acme/prod/orders", 1)
    assert allows(policy("artifacts"), "s3:PutObject", f"arn:aws:s3:::lake/{trail.path}", create_only=True)
    source = (REPOSITORY / "service/lakesweep").rglob("*.py")
    kinds = {kind for path in source for kind in re.findall(r'artifacts\.file\("(\w+)"', path.read_text())}
    assert kinds == {"plans", "ledgers"}


def test_no_statement_is_wider_than_it_says():
    for name in POLICIES:
        for statement in policy(name)["Statement"]:
            assert not any("*" in action for action in actions_of(statement))
            assert statement["Resource"].startswith("arn:aws:s3:::lake")


def test_every_action_has_its_reason():
    readme = (DEPLOY / "iam" / "README.md").read_text()
    for action in actions(policy("deleter")):
        assert any(f"`{action}`" in line.split("|")[1] for line in readme.splitlines() if line.startswith("| "))
    assert [name for name in POLICIES if f"`{name}.json`" not in readme] == []
