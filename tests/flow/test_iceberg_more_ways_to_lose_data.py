"""Whole cycles against subtler ways to lose data: clocks that are set, catalogs left behind, expiries taken back."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import SCHEMA, LakeTable, later
from tests.builders.iceberg_flow import clean, directory, plant
from tests.builders.iceberg_wrapped import NeverCommits, Wrapped

from lakesweep.cleanup import plan_file
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.local.deleter import LocalDeleter

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=30))


class SetBack(MemoryStateStore):
    """The clock is set back, well inside the allowed skew, between the plan and its commit."""

    def __init__(self, clock):
        super().__init__(clock)
        self.clock = clock

    async def set_pending_expiry(self, table, head_before, run_id):
        await super().set_pending_expiry(table, head_before, run_id)
        if head_before is not None:
            self.clock.at -= timedelta(minutes=10)


async def test_a_clock_set_back_in_between_loses_no_snapshots_files(lake, tmp_path):
    table = lake.create()
    first = table.append(1)
    table.overwrite(2)
    clock = SetClock(later(days=30, minutes=5))
    bench = Bench(root=tmp_path / "lake", clock=clock, scratch=tmp_path / "scratch", store=SetBack(clock))
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    if first in table.snapshot_ids():
        assert table.rows(first) == [{"id": 1, "name": "n1"}]
    else:
        assert str(first) in run.expired_snapshots


async def test_an_expiry_that_was_planned_but_not_committed_frees_nothing(lake, bench):
    table = lake.create()
    first = table.append(1)
    table.overwrite(2)
    before = lake.files()
    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = NeverCommits(await ours.open((await table.open()).ref))
    run = await bench.run(opened, CleanupPolicy(max_snapshot_age=timedelta(days=1)))
    assert run.plan.candidates.files > 0
    assert run.spared == run.plan.candidates.files
    assert lake.files() == before
    assert table.rows(first) == [{"id": 1, "name": "n1"}]


class Meanwhile(Wrapped):
    """Something happens right behind the expiry, when nothing is deleted yet."""

    def __init__(self, inner, happens):
        super().__init__(inner)
        self._happens = happens

    async def commit_expiry(self, *args):
        committed = await self._inner.commit_expiry(*args)
        self._happens()
        return committed


async def test_an_expiry_that_somebody_takes_back_frees_nothing(lake, bench):
    table = lake.create()
    first = table.append(1)
    table.overwrite(2)
    before = table.refresh().metadata_location
    files = lake.files()

    def point_back():
        lake.catalog.drop_table("db.t")
        lake.catalog.register_table("db.t", before)

    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = Meanwhile(await ours.open((await table.open()).ref), point_back)
    run = await bench.run(opened, CleanupPolicy(max_snapshot_age=timedelta(days=1)))
    assert str(first) in run.expired_snapshots
    assert run.spared == run.plan.candidates.files > 0
    assert files <= lake.files()
    assert table.rows(first) == [{"id": 1, "name": "n1"}]


async def test_a_file_that_is_committed_late_under_another_name_of_the_lake_stays(lake, bench, tmp_path):
    table = lake.create()
    table.append(1)
    table.overwrite(2)
    late = plant(table, "data/late.parquet")
    pq.write_table(pa.table({"id": pa.array([7], pa.int64()), "name": ["n7"]}), late)
    (tmp_path / "mount").symlink_to(tmp_path / "lake")
    elsewhere = tmp_path / "mount" / late.relative_to(tmp_path / "lake")
    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = await ours.open((await table.open()).ref)
    opened = Meanwhile(opened, lambda: table.refresh().add_files([f"file://{elsewhere}"]))
    run = await bench.run(opened, CleanupPolicy(max_snapshot_age=timedelta(days=1)))
    assert run.outcome is Outcome.DONE
    assert run.spared == 1
    assert [row["id"] for row in table.rows()] == [2, 7]


async def test_a_catalog_entry_left_behind_by_a_migration_cleans_nothing(lake, bench):
    old = lake.create("old")
    old.append(1)
    moved = lake.catalog.register_table("db.moved", old.refresh().metadata_location)
    new = LakeTable(lake=lake, name="moved", table=moved)
    for number in range(2, 8):
        new.append(number)
    run = await clean(bench, old)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "foreign_table"
    assert [row["id"] for row in new.rows()] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_commit_that_lost_its_race_is_no_other_history(lake, bench):
    """Its metadata file is newer than the head, but follows from a state that we know: plain litter."""
    table = lake.create()
    table.append(1)
    loser = Path(Location.parse(table.refresh().metadata_location).path)
    table.append(2)
    litter = loser.with_name(f"00009-{uuid.uuid4()}.metadata.json")
    litter.write_bytes(Path(Location.parse(table.refresh().metadata_location).path).read_bytes())
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    assert not litter.exists()


async def test_another_table_behind_many_leftovers_of_our_own_is_seen(lake, bench):
    mine = lake.create("mine")
    mine.append(1)
    shared = lake.catalog.create_table("db.theirs", SCHEMA, location=mine.table.location())
    theirs = LakeTable(lake=lake, name="theirs", table=shared)
    theirs.append(7)
    own = Path(Location.parse(mine.refresh().metadata_location).path).read_bytes()
    for version in range(300, 520):
        plant(mine, f"metadata/{version:05d}-{uuid.uuid4()}.metadata.json", own)
    run = await clean(bench, mine)
    assert run.refusal.code == "foreign_table"
    assert theirs.rows() == [{"id": 7, "name": "n7"}]


@pytest.mark.parametrize("sign", ["snapshot/snapshot-1", "snapshot/LATEST", "schema/schema-0", "_delta_log/0.json"])
async def test_another_formats_log_in_our_place_stops_the_table(lake, bench, sign):
    table = lake.create()
    table.append(1)
    plant(table, sign, b"{}")
    theirs = plant(table, f"bucket-0/data-{uuid.uuid4()}-0.parquet")
    run = await clean(bench, table)
    assert run.refusal.code == "foreign_table"
    assert theirs.exists()


async def test_totals_that_count_a_path_twice_do_not_stop_the_table(lake, bench):
    table = lake.create()
    paths = []
    for number in range(40):
        path = directory(table) / "data" / f"x{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]}), path)
        paths.append(f"file://{path}")
    table.refresh().add_files(paths)
    table.refresh().add_files(paths, check_duplicate_files=False)
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE


async def test_a_plan_that_was_changed_after_the_checks_deletes_nothing(lake, bench):
    table = lake.create()
    table.append(1)
    orphan, live = plant(table, "data/orphan.parquet"), next(directory(table).rglob("data/*0000*.parquet"))
    save_plan = bench.store.save_plan

    async def saved_then_changed(header):
        await save_plan(header)
        (row,) = next(plan_file.read_rows(header.rows_path)).to_pylist()
        with plan_file.PlanWriter(header.rows_path) as writer:
            writer.write(pa.RecordBatch.from_pylist([{**row, "path": f"file://{live}"}], schema=plan_file.PLAN_SCHEMA))

    bench.store.save_plan = saved_then_changed
    run = await clean(bench, table)
    assert (run.outcome, run.refusal.code) == (Outcome.FAILED, "indeterminate")
    assert orphan.exists()
    assert live.exists()


async def test_a_cancelled_sweep_sends_not_one_more_request(lake, bench, monkeypatch):
    table = lake.create()
    table.append(1)
    orphans = [plant(table, f"data/o{number}.parquet") for number in range(6)]
    begun = asyncio.Event()
    real = LocalDeleter.delete

    async def slow(self, paths, conditions=None):
        begun.set()
        await asyncio.sleep(30)
        return await real(self, paths, conditions)

    monkeypatch.setattr(LocalDeleter, "delete", slow)
    policy = CleanupPolicy(max_snapshot_age=timedelta(days=30), batch_size=1, max_concurrent_deletions=3)
    task = asyncio.create_task(clean(bench, table, policy))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(orphan.exists() for orphan in orphans)
