"""A table uses files in another table's place: a clone, `add_files`, a table that was moved. They stay there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate
from tests.builders.iceberg import SCHEMA, LakeTable
from tests.builders.shared_files import borrow, iceberg, move_clone_to_own_dataset, run

from lakesweep.cleanup import report
from lakesweep.daemon import table_uses
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
    (told,) = done.shared_files
    assert told.table.endswith("target")
    assert (told.files, told.first) == (1, path)
    assert report.plan_document(done, ())["lent"] == [{"table": told.table, "files": 1, "first": path}]
    assert Path(path.removeprefix("file://")).exists()
    assert len(target.refresh().scan().to_arrow()) == 1


@pytest.mark.parametrize(
    "properties", [{"gc.enabled": "false"}, {"history.expire.max-snapshot-age-ms": "-1"}], ids=["shared", "for ever"]
)
async def test_a_table_that_is_never_cleaned_keeps_the_files_it_uses_elsewhere(lake, properties):
    """Spark's `snapshot` procedure makes such tables: `gc.enabled=false`, over the files of another table."""
    staging = lake.create("staging")
    staging.append(1)
    (path,) = data_files(staging.table)
    target = lake.catalog.create_table("db.target", SCHEMA, properties=properties)
    target.add_files([path])
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    for _ in range(2):
        done = await run(iceberg(lake, **SHORT), "acme/prod/staging")
        assert done.outcome is Outcome.DONE, done.reason
        assert [one.table for one in done.shared_files] == ["acme/prod/target"]
    assert len(target.refresh().scan().to_arrow()) == 1


async def test_a_neighbour_that_lost_a_manifest_keeps_what_the_others_name(lake):
    staging = lake.create("staging")
    staging.append(1)
    (path,) = data_files(staging.table)
    target = lake.catalog.create_table("db.target", SCHEMA)
    target.add_files([path])
    kept = {one.manifest_path for one in target.refresh().current_snapshot().manifests(target.io)}
    target.append(staging.table.scan().to_arrow())
    for one in target.refresh().current_snapshot().manifests(target.io):
        if one.manifest_path not in kept:
            Path(one.manifest_path.removeprefix("file://")).unlink()
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    done = await run(iceberg(lake, **SHORT), "acme/prod/staging")
    assert done.outcome is Outcome.DONE, done.reason
    assert [one.first for one in done.shared_files] == [path]
    assert Path(path.removeprefix("file://")).exists()


@pytest.fixture
def asks_anew(monkeypatch):
    """However slow this machine is now."""
    monkeypatch.setattr(table_uses, "QUICK_SECONDS", 3600)


@pytest.mark.usefixtures("asks_anew")
@pytest.mark.parametrize("is_new", [False, True], ids=["a known table", "a new table"])
async def test_a_clone_made_while_planning_stops_the_run(lake, is_new):
    staging = lake.create("staging")
    staging.append(1)
    (path,) = data_files(staging.table)
    if not is_new:
        lake.catalog.create_table("db.target", SCHEMA)
    staging.table.refresh().delete("id > 0")
    staging.append(2)

    def clone():
        target = lake.catalog.create_table_if_not_exists("db.target", SCHEMA)
        target.add_files([path])

    async with App.open(iceberg(lake, **SHORT)) as app:
        save_plan = app.state.save_plan

        async def saved_then_cloned(header):
            await save_plan(header)
            await asyncio.to_thread(clone)

        app.state.save_plan = saved_then_cloned
        (work,) = await app.resolve("acme/prod/staging")
        done = await app.run(work, execute=True)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "table_changed")
    assert len(lake.catalog.load_table("db.target").scan().to_arrow()) == 1


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
    assert (done.outcome is Outcome.REFUSED) or done.shared_files == ()


async def test_files_of_a_shallow_clone_stay_in_its_source(deltas):
    borrowed = borrow(deltas, "part-00000-failed.parquet")
    done = await run(Settings.model_validate(deltas.settings()), "acme/d/source")
    assert (done.outcome, done.plan.candidates.files) == (Outcome.DONE, 2)
    assert borrowed.exists()
    assert [one.table for one in done.shared_files] == ["acme/d/clone"], "a person reads in the plan whose clone it is"


@pytest.mark.parametrize(
    "action",
    [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}},
        {"metaData": {"id": "c", "partitionColumns": [], "configuration": {"delta.logRetentionDuration": "for ever"}}},
    ],
    ids=["unknown feature", "unreadable property"],
)
async def test_files_of_a_shallow_clone_that_is_refused_stay_in_its_source(deltas, action):
    borrowed = borrow(deltas, "part-00000-failed.parquet")
    log = deltas.directory("acme/d/clone") / "_delta_log" / f"{2:020}.json"
    log.write_text(json.dumps(action) + "\n")
    done = await run(Settings.model_validate(deltas.settings()), "acme/d/source")
    assert (done.outcome, done.plan.candidates.files) == (Outcome.DONE, 2)
    assert borrowed.exists()
    refused = await run(Settings.model_validate(deltas.settings()), "acme/d/clone")
    assert refused.outcome is Outcome.REFUSED, "it is read, not cleaned"


@pytest.mark.usefixtures("asks_anew")
async def test_a_clone_that_is_made_while_its_source_is_planned_stops_the_run(deltas):
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        save_plan = app.state.save_plan

        async def saved_then_cloned(header):
            await save_plan(header)
            borrow(deltas, "part-00000-failed.parquet")

        app.state.save_plan = saved_then_cloned
        (work,) = await app.resolve("acme/d/source")
        done = await app.run(work, execute=True)
    assert (done.outcome, done.refusal.code) == (Outcome.REFUSED, "table_changed")
    assert len(deltas.orphans_left("acme/d/source")) == 3


async def test_slow_answers_about_shared_files_are_believed_for_a_while(deltas, monkeypatch):
    """Else a tenant with very many tables would do nothing but read."""
    monkeypatch.setattr(table_uses, "QUICK_SECONDS", -1)
    monkeypatch.setattr(table_uses, "_REST", 1_000_000)
    reads = []
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        read = app.neighbours._uses_by_tenant

        async def counted(*arguments):
            reads.append(arguments)
            return await read(*arguments)

        app.neighbours._uses_by_tenant = counted
        for work in await app.resolve("acme/d"):
            await app.run(work, execute=True)
    assert len(reads) == 1


async def test_what_a_table_uses_counts_while_its_dataset_is_away(deltas):
    """The clone was the only one that asked; then the disk of its dataset is not there, as if nobody had any table."""
    clones, borrowed = move_clone_to_own_dataset(deltas)
    async with App.open(Settings.model_validate(deltas.settings(state={"url": "memory://"}))) as app:
        (clone,) = await app.resolve("acme/c/clone")
        await app.run(clone, execute=True)
        clones.rename(deltas.root / "not mounted")
        (source,) = await app.resolve("acme/d/source")
        done = await app.run(source, execute=True)
    assert done.outcome is Outcome.DONE, done.reason
    assert [one.table for one in done.shared_files] == ["acme/c/clone"]
    assert borrowed.exists()
