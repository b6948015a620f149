"""A stored plan can be looked at again, and carries what an approval is bound to."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from tests.builders.small_lake import LocalLake

from lakesweep.cli.demo.lake import make_up_weeks


@pytest.fixture
def lake(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["orders"], orphans=12, ceilings={"files": 1})
    return lake


def test_a_stored_plan_is_shown_as_it_was_made(call):
    (planned,) = json.loads(call("plan", "--json")[1])["tables"]
    code, out, _ = call("show", planned["run_id"], "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["orphans"]["files"] == planned["orphans"]["files"]
    assert (shown["orphans"]["count"], shown["orphans"]["bytes"]) == (12, planned["orphans"]["bytes"])
    assert (shown["table"], shown["digest"]) == ("acme/d/orders", planned["digest"])
    text = call("show", planned["run_id"], "--files", "3")[1]
    assert planned["digest"] in text
    assert "12 files to delete" in text
    assert "… and 9 more files" in text


def test_an_approval_takes_the_digest_that_every_document_carries(call):
    call("run", "acme/d/orders", "--execute")
    (run,) = json.loads(call("runs", "--json")[1])["runs"]
    assert call("approve", run["run_id"], "--digest", "0" * 64)[0] == 3
    assert call("approve", run["run_id"], "--digest", run["digest"])[0] == 0


def test_an_approval_of_a_table_that_stays_in_dry_run_says_so(lake, call):
    call("run", "acme/d/orders", "--execute")
    (run,) = json.loads(call("runs", "--json")[1])["runs"]
    assert call("approve", run["run_id"])[2] == ""
    lake.tenants["acme"]["orphan_cleanup"]["dry_run"] = True
    code, _, told = call("approve", run["run_id"])
    assert code == 0
    assert "nothing will be deleted" in told
    assert "dry_run = true" in told


def test_a_run_that_is_not_known_or_kept_no_plan_is_reported(call, lake):
    assert "there is no run 'nosuch'" in call("show", "nosuch")[2]
    (lake.directory("acme/d/orders") / "_delta_log" / "00000000000000000000.json").write_text("{")
    call("plan")
    (run,) = json.loads(call("runs", "--json")[1])["runs"]
    code, _, told = call("show", run["run_id"])
    assert code == 2
    assert "no plan of run" in told


async def test_a_run_that_was_made_up_for_the_demo_kept_no_plan(call, tmp_path):
    """The state store has its figures, and there never were any rows."""
    table = SimpleNamespace(label="acme/d/orders", format="delta")
    (tmp_path / "state").mkdir()
    await make_up_weeks(tmp_path / "state", [table])
    await asyncio.to_thread(check_no_plan_is_shown, call)


def check_no_plan_is_shown(call):
    run = json.loads(call("runs", "--json")[1])["runs"][0]
    for options in ([], ["--json"], ["--files", "0"]):
        code, out, told = call("show", run["run_id"], *options)
        assert (code, out) == (2, "")
        assert f"no plan of run {run['run_id']} is kept: its outcome is" in told


def test_a_stored_plan_that_was_changed_is_not_shown(call, tmp_path):
    (planned,) = json.loads(call("plan", "--json")[1])["tables"]
    (rows,) = tmp_path.glob("state/artifacts/plans/*.parquet")
    rows.write_bytes(rows.read_bytes()[:-100])
    code, out, told = call("show", planned["run_id"], "--json")
    assert (code, out) == (4, "")
    assert planned["run_id"] in told
