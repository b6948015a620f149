"""A table uses files in another table's place: a clone, `add_files`, a table that was moved. They stay there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate
from tests.builders.iceberg import SCHEMA, LakeTable
from tests.builders.shared_files import iceberg, run
from tests.builders.small_lake import LocalLake

from lakesweep.cleanup import report
from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

SHORT = {
    "grace_period_hours": 0.00001,
    "allow_short_grace": True,
    "max_snapshot_age_hours": 0.00001,
    "min_snapshots_to_keep": 1,
}


def data_files(table):
    return [task.file.file_path for task in table.refresh().scan().plan_files()]


@pytest.mark.parametrize("namespace", ["db", "other"])
async def test_files_that_another_table_added_outlive_the_staging_tables_expiry(lake, namespace):
    staging = lake.create("staging")
    staging.append(1)
    (path,) = data_files(staging.table)
    if namespace == "other":
        lake.catalog.create_namespace("other")
    target = lake.catalog.create_table(f"{namespace}.target", SCHEMA)
    target.add_files([path])
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    done = await run(iceberg(lake, **SHORT), "acme/prod/staging")
    assert done.outcome is Outcome.DONE
    (told,) = done.lent
    assert told.table.endswith("target")
    assert (told.files, told.first) == (1, path)
    assert report.plan_document(done, ())["lent"] == [{"table": told.table, "files": 1, "first": path}]
    assert Path(path.removeprefix("file://")).exists()
    assert len(target.refresh().scan().to_arrow()) == 1


async def test_a_clone_made_while_planning_stops_the_run(lake):
    staging = lake.create("staging")
    staging.append(1)
    (path,) = data_files(staging.table)
    target = lake.catalog.create_table("db.target", SCHEMA)
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    async with App.open(iceberg(lake, **SHORT)) as app:
        save_plan = app.state.save_plan

        async def saved_then_cloned(header):
            await save_plan(header)
            await asyncio.to_thread(target.add_files, [path])
            app.neighbours.forget("acme")

        app.state.save_plan = saved_then_cloned
        (work,) = await app.resolve("acme/prod/staging")
        done = await app.run(work, execute=True)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "table_changed")
    assert len(target.refresh().scan().to_arrow()) == 1


@pytest.mark.parametrize("lists_left", [True, False])
async def test_a_moved_table_keeps_its_files_where_another_table_is_now(lake, lists_left):
    """With its old lists gone, only its manifests tell that it has data there."""
    moved = lake.create("moved")
    moved.append(7)
    left = moved.table.location()
    lake.catalog.commit_table(moved.refresh(), (), (SetLocationUpdate(location=f"{left}-now"),))
    if not lists_left:
        moved.append(8)
        moved.refresh().maintenance.expire_snapshots().by_id(moved.in_order()[0]).commit()
    for path in Path(left.removeprefix("file://")).rglob("*.metadata.json"):
        path.unlink()
    new = LakeTable(lake=lake, name="new", table=lake.catalog.create_table("db.new", SCHEMA, location=left))
    new.append(1)
    rows = moved.rows()
    for name in ("new", "moved"):
        done = await run(iceberg(lake, **SHORT), f"acme/prod/{name}")
        assert done.outcome in (Outcome.REFUSED, Outcome.DONE), done.reason
        assert done.refusal is None or done.refusal.code == "overlap"
        assert moved.rows() == rows
        assert new.rows() == [{"id": 1, "name": "n1"}]
    assert (done.outcome is Outcome.REFUSED) or done.lent == ()


def borrow(lake, name):
    """A commit of the clone that adds a file of the source."""
    path = lake.directory("acme/d/source") / name
    add = {"path": f"file://{path}", "partitionValues": {}, "size": 9, "modificationTime": 1, "dataChange": True}
    log = lake.directory("acme/d/clone") / "_delta_log" / f"{1:020}.json"
    log.write_text(json.dumps({"add": add}) + "\n")
    return path


@pytest.fixture
def deltas(tmp_path):
    lake = LocalLake(root=tmp_path)
    lake.add("acme", ["source", "clone"])
    return lake


async def test_files_of_a_shallow_clone_stay_in_its_source(deltas):
    borrowed = borrow(deltas, "part-00000-failed.parquet")
    done = await run(Settings.model_validate(deltas.settings()), "acme/d/source")
    assert (done.outcome, done.plan.candidates.files) == (Outcome.DONE, 2)
    assert borrowed.exists()
    assert [one.table for one in done.lent] == ["acme/d/clone"], "a person reads in the plan whose clone it is"


async def test_a_clone_that_is_made_while_its_source_is_planned_stops_the_run(deltas):
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        save_plan = app.state.save_plan

        async def saved_then_cloned(header):
            await save_plan(header)
            borrow(deltas, "part-00000-failed.parquet")
            app.neighbours.forget("acme")

        app.state.save_plan = saved_then_cloned
        (work,) = await app.resolve("acme/d/source")
        done = await app.run(work, execute=True)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "table_changed")
    assert len(deltas.orphans_left("acme/d/source")) == 3
