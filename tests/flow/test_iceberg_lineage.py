"""Another history of the same table is seen by its lineage, however far our own has gone on since."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.cycles import Bench
from tests.builders.faults import Faults, Killed
from tests.builders.iceberg import Lake, LakeTable
from tests.builders.iceberg_flow import POLICY, clean, directory, plant
from tests.builders.iceberg_histories import elsewhere, end_half_way, our_expiry_ends_half_way
from tests.builders.iceberg_metadata_files import change, file

from lakesweep.model.location import Location
from lakesweep.model.run import Outcome

SHORT = {"write.metadata.previous-versions-max": "2"}
TIDY = {"write.metadata.previous-versions-max": "4", "write.metadata.delete-after-commit.enabled": "true"}
HOUR_MS = 3_600_000


def metadata_files(table: LakeTable) -> list[Path]:
    return sorted((directory(table) / "metadata").glob("*.metadata.json"))


def litter(table: LakeTable) -> Path:
    """A commit that lost its race against the next one."""
    return end_half_way(table, lambda one: one.append(99))


@pytest.mark.parametrize("properties", [{}, SHORT, TIDY])
async def test_a_second_catalog_is_seen_after_our_log_has_rolled_over(lake, bench, tmp_path, properties):
    ours = lake.create(**properties)
    ours.append(1)
    theirs = elsewhere(lake, tmp_path, ours)
    for number in (2, 3, 4):
        theirs.append(number)
    for number in range(10, 22):
        ours.append(number)
    files = lake.files()
    run = await clean(bench, ours)
    assert run.refusal.code == "foreign_table"
    assert files <= lake.files()
    assert [row["id"] for row in theirs.rows()] == [1, 2, 3, 4]


@pytest.mark.parametrize("properties", [{}, SHORT, TIDY])
async def test_acknowledged_commits_outlive_a_catalog_that_was_restored(lake, bench, properties):
    table = lake.create(**properties)
    table.append(1)
    backup = table.refresh().metadata_location
    for number in (2, 3, 4):
        table.append(number)
    lost = table.refresh().metadata_location
    acknowledged = set(map(str, directory(table).rglob("*")))
    lake.catalog.drop_table("db.t")
    lake.catalog.register_table("db.t", backup)
    for number in range(10, 22):
        table.append(number)
    run = await clean(bench, table)
    assert run.refusal.code == "foreign_table"
    assert file(lost).exists()
    assert {path for path in acknowledged if path.endswith(".parquet")} <= set(map(str, directory(table).rglob("*")))


@pytest.mark.parametrize("hours", [-30, 30])
async def test_a_commit_that_met_no_race_in_its_time_is_another_history(lake, bench, hours):
    """One commit under another catalog, and ours went on from the same state a day earlier or later."""
    table = lake.create()
    table.append(1)
    beside = litter(table)
    change(beside, lambda one: one.update({"last-updated-ms": one["last-updated-ms"] + hours * HOUR_MS}))
    table.history((2, 3))
    run = await clean(bench, table)
    assert run.refusal.code == "foreign_table"
    assert beside.name in run.reason
    assert beside.exists()


@pytest.mark.parametrize("properties", [{}, SHORT, TIDY])
async def test_litter_of_a_lost_race_stops_no_table_however_short_its_log(lake, bench, properties):
    table = lake.create(**properties)
    table.append(1)
    beside = litter(table)
    for number in range(10, 22):
        table.append(number)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not beside.exists()


async def test_our_own_expiry_that_ended_half_way_is_litter_long_after(lake, bench):
    table = lake.create()
    table.history()
    beside = await our_expiry_ends_half_way(bench, table)
    change(beside, lambda one: one.update({"last-updated-ms": one["last-updated-ms"] - 30 * HOUR_MS}))
    table.append(9)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert not beside.exists()


async def test_a_second_tip_between_known_states_is_seen(lake, bench, tmp_path):
    """Somebody removed the files in between: what is younger than our oldest known state and follows from none of ours
    is somebody else's."""
    ours = lake.create()
    ours.append(1)
    theirs = elsewhere(lake, tmp_path, ours)
    theirs.append(2)
    between = theirs.table.metadata_location
    theirs.append(3)
    ours.append(10)
    file(between).unlink()
    assert (await clean(bench, ours)).refusal.code == "foreign_table"
    assert [row["id"] for row in theirs.rows()] == [1, 2, 3]


async def test_old_files_of_our_own_are_known_across_one_that_is_gone(lake, bench):
    """The log of a later file still names it."""
    table = lake.create(**SHORT)
    table.history(range(1, 12))
    metadata_files(table)[3].unlink()
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert len(metadata_files(table)) == 3


def end_in_the_sweep(bench: Bench) -> Bench:
    """The same place and state, with a process that is killed at its first delete."""

    class Dying(Faults):
        def hit(self, name, error, *, after):
            if name == "delete":
                raise Killed(name)

    return replace(bench, faults=Dying())


async def test_what_a_broken_sweep_left_of_our_own_past_is_swept_by_the_next(lake, bench):
    """It took more links than any log bridges: by themselves the files behind look like another history."""
    table = lake.create(**SHORT)
    table.history(range(1, 12))
    with pytest.raises(Killed):
        await clean(end_in_the_sweep(bench), table)
    for path in metadata_files(table)[3:6]:
        path.unlink()
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert len(metadata_files(table)) == 3


async def test_what_a_broken_sweep_left_is_known_however_many_runs_came_between(lake, bench):
    """Runs that deleted nothing, refused ones or dry ones, do not count: the table would be refused for ever."""
    table = lake.create(**SHORT)
    table.history(range(1, 12))
    with pytest.raises(Killed):
        await clean(end_in_the_sweep(bench), table)
    for path in metadata_files(table)[3:6]:
        path.unlink()
    for _ in range(12):
        bench.clock.at += timedelta(minutes=1)
        await clean(bench, table, execute=False)
    bench.clock.at += timedelta(minutes=1)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert len(metadata_files(table)) == 3


async def test_files_that_come_back_after_a_sweep_are_looked_at_anew(lake, bench):
    table = lake.create(**SHORT)
    table.history(range(1, 12))
    with pytest.raises(Killed):
        await clean(end_in_the_sweep(bench), table)
    for path in metadata_files(table)[3:6]:
        path.unlink()
    back = metadata_files(table)[:3]
    for path in back:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert (await clean(bench, table)).refusal.code == "foreign_table"
    assert back == metadata_files(table)[:3]


async def test_restored_old_metadata_goes_before_what_shows_that_it_is_ours(lake, bench):
    table = lake.create(**SHORT)
    table.history(range(1, 9))
    files = metadata_files(table)
    restored, after, current = files[:2], files[2:-3], files[-3:]
    at = (bench.clock.at - timedelta(hours=1)).timestamp()
    for path in restored:
        os.utime(path, (at, at))
    for _ in range(2):
        assert (await clean(bench, table)).outcome is Outcome.DONE
        assert metadata_files(table) == files
        bench.clock.at += timedelta(days=3.5)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert metadata_files(table) == [*after, *current]
    bench.clock.at += timedelta(days=1)
    assert (await clean(bench, table)).outcome is Outcome.DONE
    assert metadata_files(table) == current


async def test_explain_says_why_newer_metadata_stays_beside_restored(lake, bench):
    table = lake.create(**SHORT)
    table.history(range(1, 9))
    restored, after, *_ = metadata_files(table)
    at = (bench.clock.at - timedelta(hours=1)).timestamp()
    os.utime(restored, (at, at))
    handle = await lake.format(storage=bench.storage).open((await table.open()).ref)
    state = await handle.load()
    await state.references(state.plan_expiry(POLICY, bench.clock.now()))
    assert "is deleted first" in "".join(await state.explain(Location.parse(str(after))))
    assert await state.explain(Location.parse(str(restored))) == ()


def metadata_bucket(lake: Lake, tmp_path: Path) -> dict[str, str]:
    return {"write.metadata.path": f"file://{tmp_path}/metadata-bucket/t"}


async def test_another_history_in_a_metadata_place_outside_the_root_is_seen(lake, bench, tmp_path):
    ours = lake.create(**metadata_bucket(lake, tmp_path))
    ours.append(1)
    theirs = elsewhere(lake, tmp_path, ours)
    for number in (2, 3):
        theirs.append(number)
    ours.history((10, 11))
    ours.overwrite(12)
    run = await clean(bench, ours)
    assert run.refusal.code == "foreign_table"
    assert [row["id"] for row in theirs.rows()] == [1, 2, 3]


async def test_tables_that_share_a_metadata_place_are_no_strangers_to_each_other(lake, bench, tmp_path):
    mine = lake.create("mine", **metadata_bucket(lake, tmp_path))
    other = lake.create("other", **metadata_bucket(lake, tmp_path))
    mine.history((1, 2))
    other.history((7, 8))
    orphan = plant(mine, f"data/{uuid.uuid4()}.parquet")
    assert (await clean(bench, mine)).outcome is Outcome.DONE
    assert not orphan.exists()
    assert len(other.rows()) == 2
