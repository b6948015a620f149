"""The API of a service that really runs: schemathesis over its OpenAPI document, tokens, runs, approval, audit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.daemon import ORPHANS, make_place

pytestmark = pytest.mark.xdist_group("service")

TABLES = [f"{tenant}/prod/{table}" for tenant, tables in ORPHANS.items() for table in tables]


INTERPRETER_FAULT = "AST constructor recursion depth mismatch"
"""Python 3.11 itself fails so now and then when a thread parses a lambda deep in a stack, as hypothesis does."""


def schemathesis(url: str, token: str, *options: str, tries: int = 3) -> subprocess.CompletedProcess[str]:
    checked = _schemathesis(url, token, *options)
    if tries > 1 and checked.returncode and INTERPRETER_FAULT in checked.stdout:
        return schemathesis(url, token, *options, tries=tries - 1)
    return checked


def _schemathesis(url: str, token: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "schemathesis"
    return subprocess.run(
        [
            program, "run", f"{url}/api/openapi.json", "--checks", "all", "--header", f"Authorization: Bearer {token}",
            "--seed", "1", "--workers", "2", "--no-color", "--generation-database", "none", *options,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize(
    "tenants", [pytest.param(["*"], id="all tenants", marks=pytest.mark.soak), pytest.param(["acme"], id="one tenant")]
)
def test_schemathesis_finds_no_fault(tmp_path, tenants):
    place = make_place(tmp_path)
    token = place.token(*tenants)
    with place.service() as api:
        api.with_token(token).knows(*(table for table in TABLES if tenants == ["*"] or table.startswith("acme/")))
        checked = schemathesis(place.admin_url, token, "--max-examples", "25")
        if "Connection reset by peer" in checked.stdout:
            # Seen once under load, for a request without a token. Probably the answer came before the body was read
            # and was lost with the connection; that was not proven. Only this error is asked again, and only once.
            checked = schemathesis(place.admin_url, token, "--max-examples", "25")
        assert checked.returncode == 0, checked.stdout[-8000:] + checked.stderr[-2000:]
    assert "Traceback" not in (tmp_path / "service.log").read_text()


def test_a_run_asked_for_is_done_recorded_and_verified(tmp_path):
    place = make_place(tmp_path)
    with place.service() as api:
        api.knows(*TABLES)
        dry = api.run("acme/prod/orders", execute=False)
        assert (dry["outcome"], dry["orphans"]["count"], dry["deleted"]["count"]) == ("dry_run", 12, 0)
        plan = api.get(f"/api/v1/runs/{dry['run_id']}/plan?limit=5")
        assert [len(plan["orphans"]["files"]), plan["next"], plan["orphans"]["count"]] == [5, 5, 12]

        done = api.run("acme/prod/orders", execute=True)
        assert (done["outcome"], done["deleted"]["count"]) == ("done", 12)
        assert api.get("/api/v1/runs?table=acme/prod/orders&limit=1")["runs"][0]["run_id"] == done["run_id"]
    assert not list((tmp_path / "lake" / "acme").rglob("orders/data/orphan-*"))
    assert list((tmp_path / "lake" / "acme").rglob("returns/data/orphan-*"))

    shown = json.loads(place.command("audit", "show", done["run_id"], "--json").stdout)["records"]
    assert shown[0]["trigger"] == {"by": "api", "who": "local"}
    assert [record["record"] for record in shown[1:]] == ["delete"] * 12 + ["deleted"] * 12 + ["end"]
    verified = place.command("audit", "verify")
    assert (verified.returncode, "acme/prod/orders: 3 segments of 1 run: ok" in verified.stdout) == (0, True)

    segment = next((tmp_path / "state" / "artifacts" / "audit").rglob("0000000002.jsonl"))
    segment.write_bytes(segment.read_bytes().replace(b"orphan-3", b"orphan-4"))
    broken = place.command("audit", "verify", "--table", "acme/prod/orders")
    assert broken.returncode == 4
    assert "segment 2: its checksum does not match" in broken.stdout


def test_a_plan_above_its_ceiling_waits_for_its_approval(tmp_path):
    place = make_place(tmp_path, umbrella="orphan_cleanup.ceilings = { files = 2 }")
    with place.service() as api:
        api.knows(*TABLES)
        refused = api.run("umbrella/prod/virus", execute=True)
        assert (refused["outcome"], refused["refused"]["code"]) == ("refused", "ceiling_files")
        wrong = api.ask("POST", f"/api/v1/runs/{refused['run_id']}/approve", {"digest": "0" * 64})
        assert wrong.status == 409
        digest = api.get(f"/api/v1/runs/{refused['run_id']}/plan")["digest"]
        approved = api.ask("POST", f"/api/v1/runs/{refused['run_id']}/approve", {"digest": digest})
        assert (approved.status, approved.document["approved_by"]) == (200, "local")
        done = api.run("umbrella/prod/virus", execute=True)
        assert (done["outcome"], done["deleted"]["count"]) == ("done", 7)


def test_tokens_keep_tenants_apart_and_leak_nothing(tmp_path):
    place = make_place(tmp_path)
    acme, reader = place.token("acme"), place.token("umbrella", role="read")
    with place.service() as api:
        assert api.ask("GET", "/api/v1/tables").status == 401
        assert api.with_token("lakesweep_000000000000_" + "A" * 43).ask("GET", "/api/v1/tables").status == 401
        mine, theirs = api.with_token(acme), api.with_token(reader)
        mine.knows("acme/prod/orders", "acme/prod/returns")
        theirs.knows("umbrella/prod/virus")
        run_id = theirs.get("/api/v1/tables")["tables"][0]["last_run"] or {}
        hidden = mine.ask("GET", f"/api/v1/runs/{run_id.get('run_id', '1' * 32)}")
        absent = mine.ask("GET", f"/api/v1/runs/{'0' * 32}")
        assert (hidden.status, hidden.text) == (absent.status, absent.text) == (404, absent.text)
        refused = mine.ask("POST", "/api/v1/runs", {"target": "umbrella/prod/virus"})
        unknown = mine.ask("POST", "/api/v1/runs", {"target": "nobody/prod/virus"})
        assert (refused.status, refused.text) == (unknown.status, unknown.text) == (404, unknown.text)
        assert theirs.ask("POST", "/api/v1/runs", {"target": "umbrella/prod/virus"}).status == 403
        for path in ("/api/v1/tables", "/api/v1/runs"):
            assert "umbrella" not in mine.ask("GET", path).text
            assert "acme" not in theirs.ask("GET", path).text

        listed = json.loads(place.command("token", "list", "--json").stdout)["tokens"]
        assert [(token["role"], token["tenants"]) for token in listed] == [
            ("operate", ["acme"]),
            ("read", ["umbrella"]),
        ]
        assert not {"digest", "token"} & set(listed[0])
        assert place.command("token", "revoke", listed[0]["id"]).returncode == 0
        assert mine.ask("GET", "/api/v1/tables").status == 401
        assert theirs.ask("GET", "/api/v1/tables").status == 200
    log = (tmp_path / "service.log").read_text()
    assert acme not in log
    assert reader not in log


def test_what_is_paused_is_shown_on_its_tables(tmp_path):
    place = make_place(tmp_path)
    with place.service() as api:
        api.knows(*TABLES)
        paused = api.ask("POST", "/api/v1/pause", {"scope": "acme", "reason": "migration"})
        assert [hold["scope"] for hold in paused.document["paused"]] == ["acme"]
        shown = {table["table"]: table["paused"] for table in api.get("/api/v1/tables")["tables"]}
        assert shown == {"acme/prod/orders": True, "acme/prod/returns": True, "umbrella/prod/virus": False}
        assert api.ask("POST", "/api/v1/resume", {"scope": "acme"}).document == {"paused": []}
        assert api.ask("POST", "/api/v1/pause", {"scope": "acne"}).status == 404


def test_without_tokens_the_service_refuses_to_listen_to_others(tmp_path):
    place = make_place(tmp_path)
    text = place.config.read_text().replace(f'"127.0.0.1:{place.admin_port}"', f'"0.0.0.0:{place.admin_port}"')
    place.config.write_text(text)
    refused = place.command("serve")
    assert refused.returncode == 2
    assert "admin.listen" in refused.stderr
    assert "lakesweep token new" in refused.stderr


def test_a_token_for_a_tenant_that_is_not_configured_is_a_slip(tmp_path):
    place = make_place(tmp_path)
    refused = place.command("token", "new", "--tenant", "acne")
    assert refused.returncode == 2
    assert "acne" in refused.stderr
    assert place.command("token", "revoke", "nothing").returncode == 2


def test_nothing_is_deleted_while_the_audit_trail_cannot_be_written(tmp_path):
    place = make_place(tmp_path)
    blocked = tmp_path / "state" / "artifacts" / "audit"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("no directory")
    failed = place.command("run", "acme/prod/orders", "--execute", "--json")
    (run,) = json.loads(failed.stdout)["tables"]
    assert (failed.returncode, run["outcome"], run["deleted"]["count"]) == (4, "failed", 0)
    assert "the audit trail cannot be written" in run["reason"]
    assert len(list((tmp_path / "lake" / "acme").rglob("orders/data/orphan-*"))) == ORPHANS["acme"]["orders"]

    blocked.unlink()
    done = place.command("run", "acme/prod/orders", "--execute", "--json")
    assert json.loads(done.stdout)["tables"][0]["deleted"]["count"] == ORPHANS["acme"]["orders"]
    assert place.command("audit", "verify").returncode == 0
