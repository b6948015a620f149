"""The policies allow what our code asks of S3, below one root, and nothing else."""

from __future__ import annotations

import ast
import json
from fnmatch import fnmatchcase

import pytest
from tests.deploy.tools import DEPLOY, REPOSITORY

CALLS = {
    "list_objects_v2": "s3:ListBucket",
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "put_object": "s3:PutObject",
    "delete_object": "s3:DeleteObject",
    "delete_objects": "s3:DeleteObject",
    "list_buckets": None,  # for the Date header, which a refusal has too
}
"""What S3 wants for each of our requests."""
CHANGING = {"s3:PutObject", "s3:DeleteObject"}


def policy(name):
    text = (DEPLOY / "iam" / f"{name}.json").read_text()
    return json.loads(text.replace("${BUCKET}", "lake").replace("${PREFIX}", "acme"))


def actions(document):
    return {statement["Action"] for statement in document["Statement"]}


def allows(document, action, resource, prefix=None):
    """What AWS makes of a request, as far as these policies use the language."""
    return any(
        statement["Effect"] == "Allow"
        and statement["Action"] == action
        and fnmatchcase(resource, statement["Resource"])
        and all(
            prefix is None or fnmatchcase(prefix, wanted["s3:prefix"])
            for wanted in [statement.get("Condition", {}).get("StringLikeIfExists")]
            if wanted
        )
        for statement in document["Statement"]
    )


def requests():
    """By class, the requests that our code sends through an S3 client."""
    found = {}
    for path in (REPOSITORY / "service/lakesweep/storage").glob("s3*.py"):
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
    assert actions(policy("reader")) == sent["S3Storage"]
    assert actions(policy("deleter")) == set().union(*sent.values())
    assert not actions(policy("reader")) & CHANGING


@pytest.mark.parametrize("name", ["reader", "deleter"])
def test_nothing_outside_the_root_is_allowed(name):
    document = policy(name)
    for action in actions(document) - {"s3:ListBucket"}:
        assert allows(document, action, "arn:aws:s3:::lake/acme/orders/data/a.parquet")
        for outside in ("lake/acme2/a", "lake/acme", "lake/b/acme/a", "lake2/acme/a"):
            assert not allows(document, action, f"arn:aws:s3:::{outside}")
    for prefix in ("acme/", "acme/orders/"):
        assert allows(document, "s3:ListBucket", "arn:aws:s3:::lake", prefix)
    for prefix in ("", "acme", "acme2/", "b/"):
        assert not allows(document, "s3:ListBucket", "arn:aws:s3:::lake", prefix)


@pytest.mark.parametrize("name", ["reader", "deleter"])
def test_an_object_that_is_not_there_can_be_told_from_a_forbidden_one(name):
    assert allows(policy(name), "s3:ListBucket", "arn:aws:s3:::lake", prefix=None)


def test_no_statement_is_wider_than_it_says():
    for name in ("reader", "deleter"):
        for statement in policy(name)["Statement"]:
            assert isinstance(statement["Action"], str)
            assert "*" not in statement["Action"]
            assert statement["Resource"].startswith("arn:aws:s3:::lake")


def test_every_action_has_its_reason():
    readme = (DEPLOY / "iam" / "README.md").read_text()
    for action in actions(policy("deleter")):
        assert f"| `{action}` |" in readme
