"""Whole cycles on a table that somebody else goes on with: under another catalog, or from a place that it left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.table.update import SetLocationUpdate
from tests.builders.cycles import Bench, SetClock
from tests.builders.iceberg import SCHEMA, LakeTable, later
from tests.builders.iceberg_flow import clean, directory, plant
from tests.builders.iceberg_histories import elsewhere, end_half_way, our_expiry_ends_half_way

from lakesweep.model.location import Location
from lakesweep.model.run import Outcome


def appends(table: LakeTable) -> None:
    table.append(2)


def sets_a_property(table: LakeTable) -> None:
    table.set({"owner": "somebody"})


def describes(table: LakeTable) -> None:
    table.add_partition_statistics(table.current)


def expires(table: LakeTable) -> None:
    """As an expiry of ours would that ended half-way."""
    table.refresh().maintenance.expire_snapshots().by_id(table.in_order()[0]).commit()


@pytest.mark.parametrize("commits", [appends, sets_a_property, describes, expires])
async def test_a_single_commit_under_another_catalog_is_seen(lake, bench, tmp_path, commits):
    old = lake.create()
    old.append(0)
    old.overwrite(1)
    new = elsewhere(lake, tmp_path, old)
    commits(new)
    files, rows = lake.files(), new.rows()
    run = await clean(bench, old)
    assert run.refusal.code == "foreign_table"
    assert files <= lake.files()
    assert new.rows() == rows


async def test_a_straggler_in_the_old_catalog_does_not_hide_the_new_one(lake, bench, tmp_path):
    old = lake.create()
    old.append(1)
    new = elsewhere(lake, tmp_path, old)
    for number in range(2, 5):
        new.append(number)
    old.append(9)
    run = await clean(bench, old)
    assert run.refusal.code == "foreign_table"
    assert [row["id"] for row in new.rows()] == [1, 2, 3, 4]


async def test_a_copy_that_is_made_ready_for_another_place_is_no_other_history(lake, bench):
    """As Iceberg's own `rewrite_table_path` leaves it: every metadata file anew, with all addresses changed."""
    table = lake.create()
    table.history()
    for path in sorted((directory(table) / "metadata").glob("*.metadata.json")):
        text = path.read_text().replace(table.table.location(), "s3://backup/t")
        plant(table, f"metadata/copy-table-staging-1/{path.name}", text.encode())
    assert (await clean(bench, table)).outcome is Outcome.DONE


async def test_our_own_past_that_fell_out_of_the_log_is_no_other_history(lake, bench):
    table = lake.create(**{"write.metadata.previous-versions-max": "2"})
    table.history(range(1, 7))
    listed = [json.loads(Path(one).read_text()) for one in (directory(table) / "metadata").glob("*.metadata.json")]
    assert len(listed) > 5
    assert (await clean(bench, table)).outcome is Outcome.DONE


async def test_an_expiry_of_ours_that_ended_before_its_commit_is_no_other_history(lake, bench):
    table = lake.create()
    table.history()
    litter = await our_expiry_ends_half_way(bench, table)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not litter.exists()


async def test_a_half_finished_commit_stops_the_table_until_the_next(lake, bench):
    """What nobody points at here may be what another catalog points at."""
    table = lake.create()
    table.append(1)
    litter = end_half_way(table, sets_a_property)
    assert (await clean(bench, table)).refusal.code == "foreign_table"
    assert litter.exists()
    table.append(2)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not litter.exists()


async def test_a_commit_under_way_while_the_table_is_read_is_no_other_history(lake, bench, monkeypatch):
    table = lake.create()
    table.append(1)
    ours = lake.format(storage=bench.storage, writer=bench.writer)
    opened = await ours.open((await table.open()).ref)
    before = await opened.load()
    table.append(2)
    assert await before.foreign_owner([await opened.head()]) is None


async def test_files_that_a_moved_table_left_behind_keep_others_from_their_place(lake, tmp_path):
    moved = lake.create("moved")
    moved.append(7)
    left = moved.table.location()
    update = SetLocationUpdate(location=f"{left}-now")
    lake.catalog.commit_table(moved.refresh(), (), (update,))
    # As Iceberg does with write.metadata.delete-after-commit.enabled.
    for path in Path(Location.parse(left).path).rglob("*.metadata.json"):
        path.unlink()
    new = LakeTable(lake=lake, name="new", table=lake.catalog.create_table("db.new", SCHEMA, location=left))
    new.append(1)
    bench = Bench(
        root=tmp_path / "lake",
        clock=SetClock(later(days=10)),
        scratch=tmp_path / "scratch",
        neighbours=await lake.format().locations(),
    )
    run = await clean(bench, new)
    assert run.refusal.code == "overlap"
    assert moved.rows() == [{"id": 7, "name": "n7"}]


@pytest.mark.parametrize("sign", ["_delta_log/0.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"])
async def test_a_data_path_that_is_another_tables_home_stops_the_table(lake, bench, sign):
    """Tables that were taken over where they lay keep their data right there, in no directory of its own."""
    table = lake.create(**{"write.data.path": f"file://{lake.root}/wh/shared"})
    table.append(1)
    shared = lake.root / "wh" / "shared"
    (shared / sign).parent.mkdir()
    (shared / sign).write_text(json.dumps({"table-uuid": "d2f6b1c8-0000-4000-8000-000000000000"}))
    theirs = shared / "part-00000.parquet"
    theirs.write_bytes(b"theirs")
    run = await clean(bench, table)
    assert theirs.exists()
    assert run.refusal.code == "foreign_table"


async def test_a_table_that_left_a_shared_data_path_keeps_what_it_has_there(lake, tmp_path):
    shared = {"write.data.path": f"file://{lake.root}/wh/shared"}
    stays, left = lake.create("stays", **shared), lake.create("left", **shared)
    stays.append(1)
    left.append(7)
    left.set({"write.data.path": f"file://{lake.root}/wh/left-own"})
    bench = Bench(
        root=tmp_path / "lake",
        clock=SetClock(later(days=10)),
        scratch=tmp_path / "scratch",
        neighbours=await lake.format().locations(),
    )
    await clean(bench, stays)
    assert left.rows() == [{"id": 7, "name": "n7"}]
