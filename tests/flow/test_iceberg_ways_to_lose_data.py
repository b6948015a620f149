"""Whole cycles against the ways in which cleaners have lost data. Each test fails if its guard is taken out."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import LakeTable, later
from tests.builders.iceberg_flow import POLICY, clean, directory, live_files, plant

from lakesweep.model.files import Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.state.memory import MemoryStateStore


@pytest.mark.parametrize("odd", ["#1", "?versionId=2", "%20", "+", " ", "&<>'\"", "ünïcode", ";", "\\", "%2F..%2F"])
async def test_an_orphan_with_url_syntax_never_deletes_its_neighbour(lake, bench, odd):
    table = lake.create()
    table.append(1)
    live = live_files(table)[0]
    orphan = live.with_name(f"{live.name}{odd}.parquet")
    orphan.write_bytes(b"x")
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    assert not orphan.exists()
    assert live.exists()


async def test_files_of_staged_and_rolled_back_snapshots_are_live(lake, bench):
    table = lake.create()
    first = table.append(1)
    staged = table.stage(2)
    table.append(3)
    table.rollback(first)
    before = lake.files()
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    assert run.plan.candidates.files == 0
    assert lake.files() == before
    assert table.rows(staged) == [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}]


async def test_statistics_hints_and_old_metadata_files_are_live(lake, bench):
    table = lake.create()
    snapshot = table.append(1)
    statistics = Path(Location.parse(table.add_partition_statistics(snapshot)).path)
    hint = plant(table, "metadata/version-hint.text", b"3")
    old_metadata = sorted((directory(table) / "metadata").glob("00000-*.metadata.json"))
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    assert statistics.exists()
    assert hint.exists()
    assert old_metadata
    assert all(path.exists() for path in old_metadata)


@pytest.mark.parametrize(
    "name", ["_temporary/0/x.parquet", ".hive-staging/x.parquet", "data/_tmp/x.parquet", "data/.x.parquet"]
)
async def test_hidden_names_stay(lake, bench, name):
    table = lake.create()
    table.append(1)
    hidden = plant(table, name)
    run = await clean(bench, table)
    assert hidden.exists()
    assert run.plan.verdicts[Verdict.RESERVED].files == 1


@pytest.mark.parametrize(
    "name", ["README.md", "data/_SUCCESS.txt", "data/part.csv", "notes", "data/backup.parquet.bak"]
)
async def test_names_that_iceberg_does_not_write_stay(lake, bench, name):
    table = lake.create()
    table.append(1)
    foreign = plant(table, name)
    await clean(bench, table)
    assert foreign.exists()


async def test_a_neighbour_with_a_longer_name_is_not_touched(lake, bench):
    table, neighbour = lake.create("t1"), lake.create("t10")
    table.append(1)
    neighbour.append(1)
    stray = plant(neighbour, "data/stray.parquet")
    run = await clean(bench, table)
    assert run.outcome is Outcome.DONE
    assert stray.exists()
    assert neighbour.rows() == [{"id": 1, "name": "n1"}]


async def test_another_tables_metadata_in_our_place_stops_the_table(lake, bench):
    table, other = lake.create("mine"), lake.create("theirs")
    table.append(1)
    other.append(2)
    foreign = sorted((directory(other) / "metadata").glob("*.metadata.json"))[-1]
    plant(table, "metadata/00009-99999999-0000-4000-8000-000000000000.metadata.json", foreign.read_bytes())
    orphan = plant(table, "data/orphan.parquet")
    run = await clean(bench, table)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "foreign_table"
    assert orphan.exists()


async def test_a_table_nested_in_our_place_stops_the_table(lake, bench, tmp_path):
    table = lake.create("outer")
    table.append(1)
    inner = lake.catalog.create_table("db.inner", table.table.schema(), location=f"{table.table.location()}/data/inner")
    nested = LakeTable(lake=lake, name="inner", table=inner)
    nested.append(7)
    run = await clean(bench, table)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code in ("foreign_table", "overlap")
    assert nested.rows() == [{"id": 7, "name": "n7"}]


async def test_tables_that_share_a_location_are_refused_by_what_the_catalog_says(lake, tmp_path):
    table = lake.create("one")
    table.append(1)
    shared = lake.catalog.create_table("db.two", table.table.schema(), location=f"{table.table.location()}/sub")
    ours = lake.format()
    places = await ours.locations()
    bench = Bench(
        root=tmp_path / "lake", clock=SetClock(later(days=10)), scratch=tmp_path / "scratch", neighbours=places
    )
    # The nested table has no snapshot and its metadata is young, so only the catalog knows of it.
    for path in Path(Location.parse(shared.location()).path).rglob("*.json"):
        path.rename(path.with_suffix(".hidden"))
    run = await clean(bench, table)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "overlap"


async def test_a_dropped_and_recreated_table_does_not_clean_up_after_its_namesake(lake, bench):
    old = lake.create("again")
    old.append(1)
    location = old.table.location()
    lake.catalog.drop_table("db.again")
    new = LakeTable(
        lake=lake, name="again", table=lake.catalog.create_table("db.again", old.table.schema(), location=location)
    )
    new.append(2)
    before = lake.files()
    run = await clean(bench, new)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "foreign_table"
    assert lake.files() >= before


async def test_gc_disabled_is_respected(lake, bench):
    table = lake.create(**{"gc.enabled": "false"})
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    run = await clean(bench, table)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "gc_disabled"
    assert orphan.exists()


async def test_files_outside_the_roots_are_never_deleted(lake, bench, tmp_path):
    table = lake.create()
    table.append(1)
    outside = tmp_path / "lake" / "shared" / "shared.parquet"
    outside.parent.mkdir()
    outside.write_bytes(live_files(table)[0].read_bytes())
    table.refresh().add_files([f"file://{outside}"])
    table.overwrite(3)
    run = await clean(bench, table, CleanupPolicy(max_snapshot_age=timedelta(days=1)))
    assert run.outcome is Outcome.DONE
    assert run.expired_snapshots
    assert outside.exists()


async def test_a_table_outside_the_tenants_root_is_refused(lake, tmp_path):
    table = lake.create()
    table.append(1)
    orphan = plant(table, "data/orphan.parquet")
    elsewhere = tmp_path / "lake" / "other-tenant"
    bench = Bench(root=elsewhere, clock=SetClock(later(days=10)), scratch=tmp_path / "scratch")
    ours = lake.format(storage=bench.storage, writer=bench.writer, root=elsewhere)
    run = await bench.run(await ours.open((await table.open()).ref), POLICY)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "outside_root"
    assert orphan.exists()


async def test_two_cleaners_at_once_harm_nothing(lake, bench, tmp_path):
    table = lake.create()
    table.history(range(1, 9))
    table.overwrite(100)
    for number in range(20):
        plant(table, f"data/orphan-{number}.parquet")
    other = Bench(
        root=bench.root, clock=bench.clock, scratch=tmp_path / "scratch2", store=MemoryStateStore(bench.clock)
    )
    policy = CleanupPolicy(max_snapshot_age=timedelta(days=1), batch_size=3)
    runs = await asyncio.gather(clean(bench, table, policy), clean(other, table, policy))
    assert table.rows() == [{"id": 100, "name": "n100"}]
    assert any(run.outcome is Outcome.DONE for run in runs)
    again = await clean(bench, table, policy)
    assert again.outcome is Outcome.DONE
    assert table.rows() == [{"id": 100, "name": "n100"}]


async def test_a_live_file_that_storage_does_not_show_stops_the_table(lake, bench):
    table = lake.create()
    table.append(1)
    table.append(2)
    orphan = plant(table, "data/orphan.parquet")
    lost = live_files(table)[0]
    lost.unlink()
    run = await clean(bench, table)
    assert run.outcome is Outcome.REFUSED
    assert run.refusal.code == "missing_live_files"
    assert run.plan.missing == (f"file://{lost}",)
    assert orphan.exists()
    assert run.expired_snapshots == ()


async def test_the_age_of_a_file_is_judged_strictly_and_by_the_slower_clock(lake, bench):
    table = lake.create()
    table.append(1)
    boundary, older = plant(table, "data/boundary.parquet"), plant(table, "data/older.parquet")
    cutoff = bench.clock.now() - POLICY.grace_period
    os.utime(boundary, (cutoff.timestamp(), cutoff.timestamp()))
    os.utime(older, (cutoff.timestamp() - 1, cutoff.timestamp() - 1))
    await clean(bench, table)
    assert boundary.exists()
    assert not older.exists()


async def test_a_file_from_the_future_stays(lake, bench):
    table = lake.create()
    table.append(1)
    future = plant(table, "data/future.parquet")
    when = (datetime.now(UTC) + timedelta(days=400)).timestamp()
    os.utime(future, (when, when))
    run = await clean(bench, table)
    assert future.exists()
    assert run.plan.verdicts[Verdict.YOUNG].files == 1


async def test_a_moved_table_keeps_what_it_names_under_its_old_address(lake, bench, tmp_path):
    """The files were copied along with the table, and the metadata still names the originals: which is which?"""
    table = lake.create("moved")
    table.append(1)
    old = directory(table)
    new = old.parent / "moved_here"
    new.mkdir()
    (new / "data").mkdir()
    copy = new / "data" / live_files(table)[0].name
    copy.write_bytes(live_files(table)[0].read_bytes())
    metadata = json.loads(Path(Location.parse(table.refresh().metadata_location).path).read_text())
    metadata["location"] = f"file://{new}"
    moved = new / "metadata" / "00009-aaaaaaaa-0000-4000-8000-000000000000.metadata.json"
    moved.parent.mkdir()
    moved.write_text(json.dumps(metadata))
    lake.catalog.drop_table("db.moved")
    table = LakeTable(lake=lake, name="moved", table=lake.catalog.register_table("db.moved", f"file://{moved}"))
    await clean(bench, table)
    assert copy.exists()
