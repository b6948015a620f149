"""The OpenAPI document and what is really answered are the same, down to the last field."""

import functools

import pytest
from tests.builders.admin import ORDERS, RUN_ID, SmallService
from tests.builders.audits import a_run
from tests.unit.cli import examples

from lakesweep.admin.app import make_app
from lakesweep.cleanup.report import run_document

ANSWERS = [
    ("get", "/api/v1/tables", {}),
    ("get", "/api/v1/report", {}),
    ("get", "/api/v1/ghosts", {}),
    ("get", "/api/v1/me", {}),
    ("get", "/api/v1/settings", {"params": {"table": "acme/prod/orders"}}),
    ("get", "/api/v1/runs/{run_id}/actions", {}),
    ("get", "/api/v1/table", {"params": {"table": "acme/prod/orders"}}),
    ("get", "/api/v1/snapshots", {"params": {"table": "acme/prod/orders"}}),
    ("get", "/api/v1/explain", {"params": {"table": "acme/prod/orders", "path": "s3://lake/x"}}),
    ("get", "/api/v1/runs/{run_id}/groups", {}),
    ("get", "/api/v1/runs/{run_id}/batches", {}),
    ("post", "/api/v1/runs", {"json": {"target": ORDERS.label}}),
    ("post", "/api/v1/hints", {"json": {"table": ORDERS.label, "event": "committed"}}),
    ("get", "/api/v1/runs", {}),
    ("get", "/api/v1/runs/{run_id}", {}),
    ("get", "/api/v1/runs/{run_id}/plan", {}),
    ("post", "/api/v1/runs/{run_id}/approve", {}),
    ("post", "/api/v1/runs/{run_id}/restore", {"json": {"paths": ["*.parquet"]}}),
    ("post", "/api/v1/pause", {}),
    ("post", "/api/v1/stop", {}),
    ("get", "/api/v1/holds", {}),
    ("get", "/healthz", {}),
    ("get", "/readyz", {}),
]


@functools.cache
def openapi() -> dict:
    return make_app(backend=None, gatekeeper=None).openapi()


def differences(value, schema, at="") -> list[str]:
    """Fields that only the value has, and fields that only the schema has."""
    if "$ref" in schema:
        return differences(value, openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]], at)
    if "anyOf" in schema:
        fitting = [one for one in schema["anyOf"] if (one.get("type") == "null") == (value is None)]
        return differences(value, fitting[0], at) if fitting else [f"{at}: {value!r} is not allowed"]
    if isinstance(value, list):
        return [found for one in value for found in differences(one, schema["items"], f"{at}[]")]
    if not isinstance(value, dict):
        return []
    if "properties" not in schema:
        return [found for one in value.values() for found in differences(one, schema["additionalProperties"], at)]
    documented = schema["properties"]
    missing = [f"{at}.{name}: not documented" for name in value.keys() - documented.keys()]
    absent = [f"{at}.{name}: documented, not answered" for name in documented.keys() - value.keys()]
    optional = [f"{at}.{name}: optional" for name in documented.keys() - set(schema.get("required", ()))]
    inner = [
        found
        for name in value.keys() & documented
        for found in differences(value[name], documented[name], f"{at}.{name}")
    ]
    return sorted(missing + absent + optional + inner)


def answer_schema(method: str, path: str) -> dict:
    answers = openapi()["paths"][path][method]["responses"]
    return next(answers[status] for status in ("200", "202") if status in answers)["content"]["application/json"][
        "schema"
    ]


@pytest.mark.parametrize(("method", "path", "given"), ANSWERS)
async def test_every_answer_has_exactly_the_documented_fields(tmp_path, method, path, given):
    service = SmallService(tmp_path)
    await service.seed()
    async with service.client() as client:
        answer = await client.request(method, path.format(run_id=RUN_ID), **given)
    assert answer.status_code in (200, 202), answer.text
    assert differences(answer.json(), answer_schema(method, path)) == []


def test_every_route_with_a_document_is_held_against_it():
    cancel = ("post", "/api/v1/runs/{run_id}/cancel"), ("post", "/api/v1/resume"), ("get", "/metrics")
    routes = {(method, path) for path, item in openapi()["paths"].items() for method in item}
    assert {(method, path) for method, path, _ in ANSWERS} == routes - set(cancel)


@pytest.mark.parametrize("run", [a_run(), examples.done(), examples.refused(), examples.planned()])
def test_the_run_of_the_command_line_is_the_run_of_the_api(run):
    schema = answer_schema("get", "/api/v1/runs/{run_id}")
    assert differences(run_document(run), schema) == []
