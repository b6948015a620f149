"""A table that uses files of another cannot be read any more, and the process that knew it has ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.builders.cycles import SetClock
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace, open_table
from tests.builders.iceberg import SCHEMA
from tests.builders.shared_files import iceberg, move_clone_to_own_dataset, run
from tests.builders.small_lake import small_table, write_local

from lakesweep.daemon.app import App
from lakesweep.daemon.shared_files import SharedFileIndex
from lakesweep.model.errors import Denied, Indeterminate, Unavailable
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings
from lakesweep.storage import memory
from lakesweep.storage.memory import MemoryStorage

SHORT = {"grace_period_hours": 0.00001, "allow_short_grace": True}


async def plan(settings, target):
    async with App.open(settings) as app:
        (work,) = await app.resolve(target)
        return await app.plan(work)


def damaged(clones):
    (clones / "clone" / "_delta_log" / f"{1:020}.json").write_text('{"add": {"pa')


def not_mounted(clones):
    clones.rename(clones.with_name("elsewhere"))
    clones.mkdir()


@pytest.mark.parametrize("happens", [damaged, not_mounted])
async def test_a_clone_that_cannot_be_read_after_a_restart_stops_its_source(deltas, happens):
    clones, borrowed = move_clone_to_own_dataset(deltas)
    settings = Settings.model_validate(deltas.settings())
    assert [one.table for one in (await plan(settings, "acme/d/source")).shared_files] == ["acme/c/clone"]
    happens(clones)
    for _ in range(2):
        stopped = await run(settings, "acme/d/source")
        assert (stopped.outcome, stopped.refusal and stopped.refusal.code) == (Outcome.REFUSED, "neighbours_unknown")
        assert f"acme/c/clone used file://{borrowed}" in stopped.reason
    assert borrowed.exists()


def dropped(lake, clones):
    shutil.rmtree(clones / "clone")
    write_local(clones / "another", small_table("another"))


def no_longer_configured(lake, clones):
    damaged(clones)
    del lake.tenants["acme"]["datasets"][1]


@pytest.mark.parametrize("happens", [dropped, no_longer_configured])
async def test_a_clone_that_is_no_table_any_more_is_forgotten(deltas, happens):
    clones, borrowed = move_clone_to_own_dataset(deltas)
    await plan(Settings.model_validate(deltas.settings()), "acme/d/source")
    happens(deltas, clones)
    done = await run(Settings.model_validate(deltas.settings()), "acme/d/source")
    assert done.outcome is Outcome.DONE, done.reason
    assert not borrowed.exists()


async def test_a_table_in_our_place_still_counts_when_its_metadata_is_lost(lake):
    """Its catalog entry tells where its metadata was, and nothing tells any more that its data is in our place."""
    ours = lake.create("ours")
    ours.append(1)
    shared = {"write.data.path": f"{ours.table.location()}/data"}
    theirs = lake.catalog.create_table("db.theirs", SCHEMA, properties=shared)
    theirs.append(ours.table.scan().to_arrow())
    (task,) = theirs.refresh().scan().plan_files()
    settings = iceberg(lake, state=None, **SHORT)
    assert (await plan(settings, "acme/prod/ours")).refusal.code == "overlap"
    Path(Location.parse(theirs.metadata_location).path).write_bytes(b"{")
    stopped = await run(settings, "acme/prod/ours")
    assert (stopped.outcome, stopped.refusal and stopped.refusal.code) == (Outcome.REFUSED, "neighbours_unknown")
    assert Path(task.file.file_path.removeprefix("file://")).exists()


async def test_files_added_elsewhere_stay_while_the_catalog_does_not_answer(lake):
    staging = lake.create("staging")
    staging.append(1)
    (task,) = staging.table.scan().plan_files()
    other = type(lake).make(lake.root / "other")
    other.catalog.create_table("db.target", SCHEMA).add_files([task.file.file_path])
    staging.table.refresh().delete("id > 0")
    staging.append(2)
    second = {"id": "second", "format": "iceberg", "catalog": other.properties, "namespace": "db"}
    settings = iceberg(lake, second, state=None, **SHORT, max_snapshot_age_hours=0.00001, min_snapshots_to_keep=1)
    assert [one.table for one in (await plan(settings, "acme/prod/staging")).shared_files] == ["acme/second/target"]
    Path(other.properties["uri"].removeprefix("sqlite:///")).write_bytes(b"no database at all" * 100)
    stopped = await run(settings, "acme/prod/staging")
    assert (stopped.outcome, stopped.refusal and stopped.refusal.code) == (Outcome.REFUSED, "neighbours_unknown")
    assert Path(task.file.file_path.removeprefix("file://")).exists()


@pytest.mark.parametrize(("error", "passes"), [(Unavailable, True), (Denied, False)])
async def test_a_delta_log_that_may_be_readable_later_is_asked_for_again(error, passes):
    writer = DeltaWriter(MemoryPlace())
    writer.create()

    def fault(called, address):
        if called == "read":
            raise error(address, "injected")

    memory.bucket(writer.place.bucket).faults = fault
    table, index = open_table(writer, MemoryStorage(), SetClock(NOW)), SharedFileIndex(MemoryStorage())
    if passes:
        with pytest.raises(Indeterminate):
            await index.of([table], pa.array([], pa.string()))
    else:
        await index.of([table], pa.array([], pa.string()))
        assert list(index.unread) == [table.ref]
