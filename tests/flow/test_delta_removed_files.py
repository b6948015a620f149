"""A removed file stays for the table's retention, whatever a checkpoint has forgotten, and for a day at least."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, millis, stored_vector, sweep
from tests.builders.delta_neighbours import ROWS

from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

RETENTION = "delta.deletedFileRetentionDuration"
VECTOR = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _forgetful(place: LocalPlace, **configuration: str) -> DeltaWriter:
    """Version 1 was current until ten days ago, and the newest checkpoint has no tombstone of its file."""
    writer = DeltaWriter(place, configuration=configuration, features=("deletionVectors",))
    writer.create(days_ago(40))
    place.put(VECTOR, b"vectors", days_ago(39))
    writer.add("old.parquet", at=days_ago(39), vector=stored_vector("^-aqEH.-t@S}K{vb[*k^", 4))
    writer.remove("old.parquet", at=days_ago(10))
    writer.add("new.parquet", at=days_ago(10))
    writer.tombstones.clear()
    writer.checkpoint(at=days_ago(1))
    return writer


# --- tombstones that a checkpoint has forgotten


@pytest.mark.parametrize("text", ["30 days", "INTERVAL 4 WEEKS", "interval 30 days"])
@pytest.mark.parametrize("mode", list(VacuumMode))
async def test_a_remove_below_the_checkpoint_protects_its_file_for_the_retention(place, text, mode):
    _forgetful(place, **{RETENTION: text})
    swept = await sweep(place, execute=True, options=DeltaOptions(vacuum_mode=mode))
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert {"old.parquet", VECTOR} <= place.names()


@pytest.mark.parametrize("text", ["30 days", "INTERVAL 4 WEEKS"])
async def test_a_checkpoint_with_another_retention_loses_nothing(place, text):
    """deltalake takes both for a week, and leaves out of its checkpoint what was removed ten days ago."""
    root = str(place.path)
    write_deltalake(root, ROWS, configuration={RETENTION: text})
    (first,) = DeltaTable(root).file_uris()
    write_deltalake(root, ROWS, mode="overwrite")
    now = datetime.now(UTC)
    _set_back(place, removed_at=now - timedelta(days=10))
    DeltaTable(root).create_checkpoint()
    swept = await sweep(place, now=now + timedelta(minutes=1), execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert Path(first.removeprefix("file://")).exists()
    assert DeltaTable(root, version=0).to_pyarrow_table() == ROWS


def _set_back(place: LocalPlace, removed_at: datetime) -> None:
    """The second commit was made then, and everything else is older; the log is inside its own retention."""
    commit = place.path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "remove" in line:
            line["remove"]["deletionTimestamp"] = millis(removed_at)
    commit.write_text("\n".join(map(json.dumps, lines)))
    for name in place.names():
        days = 0 if name.endswith(commit.name) else 10 if name.startswith("_delta_log/") else 60
        at = removed_at.timestamp() - days * 24 * 3600
        os.utime(place.path / name, (at, at))


async def test_a_retention_that_was_raised_after_a_checkpoint_holds(place):
    writer = _forgetful(place)
    writer.configuration = {RETENTION: "interval 30 days"}
    writer.commit([{"metaData": writer.metadata()}], NOW - timedelta(hours=1))
    assert not (await sweep(place, execute=True)).data
    assert {"old.parquet", VECTOR} <= place.names()


async def test_a_remove_below_the_checkpoint_lets_go_once_the_retention_is_over(place):
    _forgetful(place, **{RETENTION: "interval 9 days"})
    assert (await sweep(place, execute=True)).data == {"old.parquet", VECTOR}


@pytest.mark.parametrize("mode", list(VacuumMode))
async def test_of_two_removes_of_one_file_the_younger_counts(place, mode):
    """Removed long ago, added again, removed lately: a lite vacuum reads the old remove as well."""
    writer = DeltaWriter(place, configuration={RETENTION: "20 days"})
    writer.create(days_ago(29))
    writer.add("a.parquet", at=days_ago(28))
    writer.remove("a.parquet", at=days_ago(25))
    writer.add("a.parquet", at=days_ago(24), write=False)
    writer.remove("a.parquet", at=days_ago(10))
    writer.add("b.parquet", at=days_ago(9))
    writer.tombstones.clear()
    writer.checkpoint(at=days_ago(1))
    assert not (await sweep(place, options=DeltaOptions(vacuum_mode=mode))).data


async def test_a_writer_whose_clock_runs_ahead_of_the_stores_loses_nothing(place):
    """By the store's clock the commit is older than the retention; by the writer's the remove is not."""
    writer = DeltaWriter(place, configuration={RETENTION: "10 days"})
    writer.create(days_ago(29))
    writer.add("a.parquet", at=days_ago(28))
    writer.remove("a.parquet", at=days_ago(10.2), removed_at=days_ago(9.9))
    writer.add("b.parquet", at=days_ago(9))
    writer.tombstones.clear()
    writer.checkpoint(at=days_ago(1))
    assert not (await sweep(place)).data


async def test_a_damaged_commit_that_may_hold_young_removes_stops_the_table(place):
    writer = _forgetful(place, **{RETENTION: "30 days"})
    writer.log(f"{2:020d}.json", b"not a commit", days_ago(10))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.FAILED
    assert f"{2:020d}.json" in swept.run.reason
    assert {"old.parquet", VECTOR} <= place.names()


async def test_a_damaged_commit_older_than_every_young_remove_does_not(place):
    writer = _forgetful(place, **{RETENTION: "9 days"})
    writer.log(f"{1:020d}.json", b"not a commit", days_ago(39))
    assert (await sweep(place, execute=True)).run.outcome is Outcome.DONE


@pytest.mark.parametrize("checkpointed", [False, True])
async def test_a_remove_without_a_time_counts_from_its_commit(place, checkpointed):
    writer = DeltaWriter(place)
    writer.create(days_ago(40))
    writer.add("a.parquet", "b.parquet", "c.parquet", at=days_ago(39))
    writer.commit([writer.removal("a.parquet", None)], days_ago(9))
    writer.commit([writer.removal("b.parquet", None)], days_ago(5))
    if checkpointed:
        writer.checkpoint(at=days_ago(1))
    assert (await sweep(place)).data == {"a.parquet"}


# --- a retention that is shorter than a reader's query


@pytest.mark.parametrize("mode", list(VacuumMode))
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("text", ["interval 0 hours", "interval 1 hour"])
async def test_a_removed_file_waits_for_a_day_whatever_the_table_says(place, text, checkpointed, mode):
    writer = DeltaWriter(place, configuration={RETENTION: text})
    writer.create(days_ago(20))
    writer.add("read.parquet", "gone.parquet", at=days_ago(19))
    writer.remove("gone.parquet", at=days_ago(1.1))
    writer.remove("read.parquet", at=NOW - timedelta(hours=23))
    writer.add("new.parquet", at=NOW - timedelta(hours=2))
    if checkpointed:
        writer.tombstones.clear()
        writer.checkpoint(at=NOW - timedelta(hours=1))
    swept = await sweep(place, execute=True, options=DeltaOptions(vacuum_mode=mode))
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.data == {"gone.parquet"}
    assert "read.parquet" in place.names()


async def test_an_operator_may_allow_less_than_a_day(place):
    writer = DeltaWriter(place, configuration={RETENTION: "interval 0 hours"})
    writer.create(days_ago(20))
    writer.add("a.parquet", at=days_ago(19))
    writer.remove("a.parquet", at=NOW - timedelta(hours=3))
    short = CleanupPolicy(grace_period=timedelta(hours=2), allow_short_grace=True)
    assert (await sweep(place, policy=short)).data == {"a.parquet"}
    assert not (await sweep(place, policy=CleanupPolicy(allow_short_grace=True))).data


@pytest.mark.parametrize(
    ("told", "stays"),
    [
        ({"timestamp": millis(days_ago(0.1))}, True),
        ({"inCommitTimestamp": millis(days_ago(0.1))}, True),
        ({"timestamp": millis(days_ago(20)), "inCommitTimestamp": millis(days_ago(0.1))}, True),
        ({"timestamp": millis(days_ago(20))}, False),
        ({"timestamp": "lately"}, False),
        ({}, False),
    ],
)
async def test_an_undated_remove_counts_from_the_later_time_of_its_commit(place, told, stays):
    """The file of the commit looks ten days old: a store's clock was behind, or it was copied with an older time."""
    writer = DeltaWriter(place, configuration={RETENTION: "2 days"})
    writer.create(days_ago(29))
    writer.add("a.parquet", at=days_ago(28))
    writer.add("b.parquet", at=days_ago(27))
    writer.commit([{"remove": {"path": "a.parquet", "dataChange": True}}], days_ago(10), info=told)
    assert (await sweep(place)).data == (set() if stays else {"a.parquet"})
