"""What the API answers, and in which shape."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.admin import FILES, ORDERS, RUN_ID, SECRET, SECRET_RUN_ID, SmallService, tenants_named

import lakesweep.admin
from lakesweep.admin.limits import PAGES
from lakesweep.admin.problems import Problem
from lakesweep.model.access import Role
from lakesweep.model.errors import NotYet, SettingsError, StateError


@pytest.fixture
async def service(tmp_path):
    service = SmallService(tmp_path)
    await service.seed()
    return service


@pytest.fixture
async def client(service):
    async with service.client() as client:
        yield client


def problem(answer, status):
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    told = Problem.model_validate(answer.json())
    assert told.status == status
    return told


async def test_a_run_is_given_as_it_was_recorded(client, service):
    assert (await client.get(f"/api/v1/runs/{RUN_ID}")).json() == await service.state.get_run(RUN_ID)


async def test_a_run_that_was_started_is_named_by_its_id_and_found_under_it(client, service):
    answer = await client.post("/api/v1/runs", json={"target": ORDERS.label, "execute": True})
    assert answer.status_code == 202
    run_id = answer.json()["run_id"]
    assert answer.headers["location"] == f"/api/v1/runs/{run_id}"
    assert service.asked == [("run", ORDERS.label, "True", "local")]
    found = (await client.get(answer.headers["location"])).json()
    assert (found["run_id"], found["outcome"]) == (run_id, None)


async def test_the_report_has_the_tables_that_were_asked_for(client):
    whole = (await client.get("/api/v1/report")).json()
    assert {row["table"] for row in whole["tables"]} == {ORDERS.label, SECRET.label}
    assert whole["totals"]["files"]["orphan"] == 2 * FILES
    assert whole["tables"][0]["why"]["approvable"]
    one = (await client.get("/api/v1/report", params={"q": "ORD", "problem": "person"})).json()
    assert [row["table"] for row in one["tables"]] == [ORDERS.label]
    assert (one["matching"], one["next"], one["totals"]["tables"]) == (1, None, 2)
    for wrong in ({"sort": "size"}, {"limit": 0}, {"nonsense": 1}):
        problem(await client.get("/api/v1/report", params=wrong), 422)


async def test_a_table_reports_its_next_cycle_holds_trend_and_snapshots(client, service):
    await client.post("/api/v1/pause", json={"scope": "acme", "reason": "move", "ends_at": "2026-03-02T00:00:00Z"})
    await client.post("/api/v1/pause", json={"scope": SECRET.label})
    asked = {"params": {"table": ORDERS.label}}
    found = (await client.get("/api/v1/table", **asked)).json()
    assert [(one["scope"], one["reason"], one["ends_at"]) for one in found["holds"]] == [
        ("acme", "move", "2026-03-02T00:00:00.000Z")
    ]
    assert found["next_because"] == "it is paused until 2026-03-02 00:00 UTC; after that it runs when it is due"
    assert [day["date"] for day in found["trend"]] == ["2026-03-01"]
    told = (await client.get("/api/v1/snapshots", **asked)).json()
    assert [(one["id"], one["expires"], one["pins"]) for one in told["snapshots"]] == [
        ("7", False, ["branch main"]),
        ("1", True, []),
    ]
    async with service.client(await service.token("acme")) as tenant:
        for path in ("/api/v1/table", "/api/v1/snapshots"):
            problem(await tenant.get(path, params={"table": SECRET.label}), 404)


async def test_a_run_says_whether_it_can_be_approved_or_taken_back(client):
    found = (await client.get(f"/api/v1/runs/{RUN_ID}/actions")).json()
    assert (found["approvable"], found["restorable"]) == (True, False)
    assert f"lakesweep approve {RUN_ID}" in found["advice"]


async def test_files_of_a_plan_are_searched_and_counted_by_what_they_are(client):
    page = (await client.get(f"/api/v1/runs/{RUN_ID}/plan", params={"q": "0001", "limit": 4})).json()
    assert page["orphans"]["files"][0]["path"].endswith("/00001.parquet")
    assert (page["matching"], page["orphans"]["count"], page["next"]) == (11, FILES, 4)
    rest = (await client.get(f"/api/v1/runs/{RUN_ID}/plan", params={"q": "0001", "offset": 8})).json()
    assert (len(rest["orphans"]["files"]), rest["next"]) == (3, None)
    groups = (await client.get(f"/api/v1/runs/{RUN_ID}/groups")).json()
    assert groups["by_directory"] == [{"name": f"s3://lake/{ORDERS.label}", "count": FILES, "bytes": FILES * 7}]
    assert [one["name"] for one in groups["by_kind"]] == ["data"]


async def test_details_reveal_to_a_token_nothing_of_other_tenants(service):
    async with service.client(await service.token("acme", role=Role.READ)) as client:
        for path in (f"runs/{SECRET_RUN_ID}/groups", f"runs/{SECRET_RUN_ID}/batches", f"settings?table={SECRET.label}",
                     f"explain?path=s3://x&table={SECRET.label}"):  # fmt: skip
            assert tenants_named(problem(await client.get(f"/api/v1/{path}"), 404).detail) == set()
        assert (await client.get("/api/v1/me")).json()["tenants"] == ["acme"]


async def test_a_report_reveals_to_a_token_nothing_of_other_tenants(service):
    async with service.client(await service.token("acme", role=Role.READ)) as client:
        text = (await client.get("/api/v1/report")).text
    assert tenants_named(text) == {"acme", "orders"}


async def test_a_run_is_a_dry_run_by_default(client, service):
    await client.post("/api/v1/runs", json={"target": ORDERS.label})
    assert service.asked == [("run", ORDERS.label, "False", "local")]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "x",
        None,
        {"target": ""},
        {"target": 1},
        {"target": ORDERS.label, "execute": "yes"},
        {"target": ORDERS.label, "exceute": True},
        {"target": "x" * 1001},
    ],
)
async def test_a_request_with_a_slip_starts_nothing(client, service, body):
    told = problem(await client.post("/api/v1/runs", json=body), 422)
    assert "body" in told.detail
    assert service.asked == []


async def test_a_body_that_is_no_json_is_refused(client):
    problem(await client.post("/api/v1/runs", content=b"{", headers={"Content-Type": "application/json"}), 422)
    problem(await client.post("/api/v1/runs", content=b"\xff", headers={"Content-Type": "application/json"}), 400)
    problem(await client.post("/api/v1/runs", content=b'{"target": "x"}', headers={"Content-Type": "text/plain"}), 422)


async def test_pages_of_runs_leave_none_out(client):
    for _ in range(5):
        await client.post("/api/v1/runs", json={"target": ORDERS.label})
    whole = (await client.get("/api/v1/runs")).json()
    assert (len(whole["runs"]), whole["next"]) == (7, None)
    paged, before = [], None
    while True:
        page = (await client.get("/api/v1/runs", params={"limit": 3, **({"before": before} if before else {})})).json()
        paged += page["runs"]
        before = page["next"]
        if before is None:
            break
    assert paged == whole["runs"]


async def test_pages_of_tables_leave_none_out(client):
    first = (await client.get("/api/v1/tables", params={"limit": 1})).json()
    second = (await client.get("/api/v1/tables", params={"limit": 1, "after": first["next"]})).json()
    assert [first["tables"][0]["table"], second["tables"][0]["table"]] == [ORDERS.label, SECRET.label]
    assert second["next"] is None


async def test_pages_of_a_plan_leave_no_file_out(client, service):
    found, offset = [], 0
    while offset is not None:
        page = (await client.get(f"/api/v1/runs/{RUN_ID}/plan", params={"offset": offset, "limit": 10})).json()
        found += page["orphans"]["files"]
        offset = page["next"]
    assert [file["path"] for file in found] == [
        f"s3://lake/acme/prod/orders/{number:05}.parquet" for number in range(25)
    ]
    assert (page["orphans"]["count"], page["orphans"]["bytes"]) == (FILES, FILES * 7)
    assert page["digest"] == (await service.state.get_plan(RUN_ID)).digest
    beyond = (await client.get(f"/api/v1/runs/{RUN_ID}/plan", params={"offset": 10**12})).json()
    assert (beyond["orphans"]["files"], beyond["next"]) == ([], None)


async def test_a_run_without_a_plan_has_none_to_show(client):
    run_id = (await client.post("/api/v1/runs", json={"target": ORDERS.label})).json()["run_id"]
    for part in ("plan", "groups"):
        told = problem(await client.get(f"/api/v1/runs/{run_id}/{part}"), 404)
        assert told.detail == "no plan of this run is kept"
    assert problem(await client.get(f"/api/v1/runs/{'0' * 32}/plan"), 404).detail == "no such table or run"


async def test_an_approval_is_bound_to_the_plan_that_was_looked_at(client, service):
    told = problem(await client.post(f"/api/v1/runs/{RUN_ID}/approve", json={"digest": "another"}), 409)
    assert told.code == "other_plan"
    assert await service.state.approvals(ORDERS.label) == []
    digest = (await client.get(f"/api/v1/runs/{RUN_ID}/plan")).json()["digest"]
    answer = await client.post(f"/api/v1/runs/{RUN_ID}/approve", json={"digest": digest})
    assert answer.json() == {
        "run_id": RUN_ID,
        "table": ORDERS.label,
        "digest": digest,
        "approved_by": "local",
        "approved_at": "2026-03-01T12:00:00.000Z",
        "expires_at": "2026-03-01T13:00:00.000Z",
        "remark": None,
    }


async def test_a_run_under_way_is_cancelled_and_one_that_ended_is_not(client, service):
    problem(await client.post(f"/api/v1/runs/{RUN_ID}/cancel"), 409)
    run_id = (await client.post("/api/v1/runs", json={"target": ORDERS.label})).json()["run_id"]
    answer = await client.post(f"/api/v1/runs/{run_id}/cancel")
    assert (answer.status_code, answer.json()) == (202, {"run_id": run_id})
    assert service.asked[-1] == ("cancel", run_id, "local")


async def test_what_is_stopped_stays_paused_until_resumed(client, service):
    stopped = await client.post("/api/v1/stop", json={"scope": "acme", "reason": "wrong files"})
    assert [(hold["scope"], hold["reason"]) for hold in stopped.json()["paused"]] == [("acme", "wrong files")]
    assert ("stop", "acme", "local") in service.asked
    everything = await client.post("/api/v1/stop")
    assert [hold["scope"] for hold in everything.json()["paused"]] == ["*", "acme"]
    for scope in ("*", "acme"):
        await client.post("/api/v1/resume", json={"scope": scope})
    assert (await client.post("/api/v1/resume", json={"scope": "acme"})).json() == {"paused": []}


async def test_a_pause_of_a_table_that_is_not_there_is_reported_unless_forced(client):
    assert (await client.post("/api/v1/pause", json={"scope": "acme/prod/oders"})).status_code == 404
    forced = await client.post("/api/v1/pause", json={"scope": "acme/prod/oders", "force": True})
    assert [hold["scope"] for hold in forced.json()["paused"]] == ["acme/prod/oders"]


async def test_holds_are_listed_for_whoever_they_concern(client, service):
    for scope in ("umbrella", "acme/prod", "*"):
        await client.post("/api/v1/pause", json={"scope": scope, "reason": f"because of {scope}"})
    whole = (await client.get("/api/v1/holds")).json()["holds"]
    assert [(hold["scope"], hold["ends_at"]) for hold in whole] == [
        ("*", None),
        ("acme/prod", None),
        ("umbrella", None),
    ]
    token = await service.token("acme")
    async with service.client(token) as tenant:
        told = (await tenant.get("/api/v1/holds")).json()["holds"]
    assert [(hold["scope"], hold["reason"]) for hold in told] == [("*", None), ("acme/prod", "because of acme/prod")]


async def test_a_pause_may_have_an_end_after_which_it_is_listed_as_ended(client, service):
    wanted = {"scope": "acme/prod", "ends_at": "2026-03-01T14:00:00+01:00"}
    paused = (await client.post("/api/v1/pause", json=wanted)).json()["paused"]
    assert [hold["ends_at"] for hold in paused] == ["2026-03-01T13:00:00.000Z"]
    service.clock.moment += timedelta(hours=1)
    told = (await client.get("/api/v1/holds")).json()
    assert (told["holds"], [hold["scope"] for hold in told["ended"]]) == ([], ["acme/prod"])
    for far in ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59Z"):
        (hold,) = (await client.post("/api/v1/pause", json={"scope": "acme", "ends_at": far})).json()["paused"]
        assert hold["ends_at"] == "9000-01-01T00:00:00.000Z"
        await client.post("/api/v1/resume", json={"scope": "acme"})
    for naive in ("2026-03-01T14:00:00", "soon", 5):
        problem(await client.post("/api/v1/pause", json={"ends_at": naive}), 422)
    problem(await client.post("/api/v1/stop", json={"ends_at": "2026-03-01T14:00:00Z"}), 422)
    assert (await client.get("/api/v1/holds")).json()["holds"] == []


async def test_what_is_paused_goes_on_when_resumed(client):
    paused = await client.post("/api/v1/pause", json={"scope": "acme/prod", "reason": "migration"})
    (hold,) = paused.json()["paused"]
    assert (hold["scope"], hold["by"], hold["reason"]) == ("acme/prod", "local", "migration")
    assert (await client.post("/api/v1/resume", json={"scope": "acme/prod"})).json() == {"paused": []}


async def test_probes_need_no_token_and_are_truthful(service):
    await service.token()
    async with service.client() as client:
        for path in ("/healthz", "/readyz"):
            assert (await client.get(path)).json()["status"] == "ok"
        service.well = False
        for path in ("/healthz", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["status"]) == (503, "failing")


# Errors


async def test_an_unknown_path_or_method_is_a_problem(client):
    problem(await client.get("/api/v1/nothing"), 404)
    answer = await client.delete("/api/v1/runs")
    problem(answer, 405)
    assert answer.headers["allow"] == "GET, POST"
    assert (await client.delete(f"/api/v1/runs/{RUN_ID}/plan")).headers["allow"] == "GET"
    assert (await client.post("/")).status_code == 405


async def test_a_store_that_is_away_is_reported_without_its_address(service):
    async def away(**_):
        raise StateError("postgresql://lakesweep@10.1.2.3/db cannot be used")

    service.runs = away
    async with service.client() as client:
        told = problem(await client.get("/api/v1/runs"), 503)
    assert "10.1.2.3" not in told.detail


async def test_a_bug_is_a_problem_that_reveals_nothing(service):
    async def bug(**_):
        raise ZeroDivisionError("secret detail")

    service.runs = bug
    async with service.client() as client:
        told = problem(await client.get("/api/v1/runs"), 500)
    assert "secret" not in told.detail


async def test_settings_that_forbid_a_run_are_reported(service):
    async def forbidden(*_, **__):
        raise SettingsError("remove the key from the settings")

    service.start_run = forbidden
    async with service.client() as client:
        told = problem(await client.post("/api/v1/runs", json={"target": ORDERS.label}), 409)
    assert (told.code, told.detail) == ("settings", "remove the key from the settings")


async def test_a_table_that_is_not_discovered_yet_is_asked_for_again(service):
    async def too_early(*_, **__):
        raise NotYet("the tables are not known yet", 5)

    service.start_run = too_early
    async with service.client() as client:
        answer = await client.post("/api/v1/runs", json={"target": ORDERS.label})
    assert (problem(answer, 503).code, answer.headers["retry-after"]) == ("not_discovered", "5")


# Headers and documents


async def test_every_answer_carries_the_security_headers_and_no_cors(client):
    for path in ("/", "/dashboard.js", "/healthz", "/api/v1/runs", "/api/openapi.json", "/nothing"):
        answer = await client.get(path, headers={"Origin": "http://127.0.0.1:8484"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_the_dashboard_loads_nothing_from_elsewhere(client):
    pages = {path: (await client.get(path)) for path in PAGES if not path.endswith(".svg")}
    files = {path.name for path in (Path(lakesweep.admin.__file__).parent / "pages").iterdir()}
    assert files == {path.removeprefix("/") or "dashboard.html" for path in PAGES}
    for answer in pages.values():
        assert answer.status_code == 200
        text = answer.text
        assert "://" not in text
        assert "innerHTML" not in text
    page = (await client.get("/")).text
    assert "<style" not in page
    assert "onclick=" not in page


async def test_the_openapi_document_names_every_route_and_problem(client):
    document = (await client.get("/api/openapi.json")).json()
    assert set(document["paths"]) == {
        "/healthz", "/readyz", "/metrics", "/api/v1/tables", "/api/v1/runs", "/api/v1/runs/{run_id}",
        "/api/v1/runs/{run_id}/plan", "/api/v1/runs/{run_id}/restore",
        "/api/v1/runs/{run_id}/approve", "/api/v1/runs/{run_id}/cancel",
        "/api/v1/pause", "/api/v1/resume", "/api/v1/stop", "/api/v1/holds", "/api/v1/hints",
        "/api/v1/report", "/api/v1/ghosts", "/api/v1/me", "/api/v1/settings", "/api/v1/explain",
        "/api/v1/runs/{run_id}/groups",
        "/api/v1/runs/{run_id}/batches", "/api/v1/table", "/api/v1/snapshots",
        "/api/v1/runs/{run_id}/actions",
    }  # fmt: skip
    problems = document["paths"]["/api/v1/runs"]["post"]["responses"]["404"]["content"]
    assert problems == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    known = document["components"]["schemas"]["Problem"]["properties"]
    assert {"type", "title", "status", "detail", "code"} <= set(known), "another type of that name has taken its place"
    assert "#/components/schemas/HTTPValidationError" not in json.dumps(document)
