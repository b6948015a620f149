"""What a client-side commit writes: the snapshot log is cut as Iceberg cuts it, and nothing is ever created."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.snapshots import SnapshotLogEntry
from tests.builders.iceberg import Lake, pause
from tests.unit.iceberg.expiring import expire, expired

from lakesweep.formats.iceberg.commit_metadata import Stager, cut_log


def log(*ids: int) -> list[SnapshotLogEntry]:
    return [SnapshotLogEntry(**{"snapshot-id": one, "timestamp-ms": at}) for at, one in enumerate(ids, 1)]


def as_iceberg_cuts(entries: list[SnapshotLogEntry], left: set[int]) -> list[SnapshotLogEntry]:
    """TableMetadata.updateSnapshotLog, line by line."""
    kept: list[SnapshotLogEntry] = []
    for entry in entries:
        if entry.snapshot_id in left:
            kept.append(entry)
        else:
            kept.clear()
    return kept


def test_the_log_is_cut_after_the_newest_gone_entry_as_iceberg_does():
    entries = log(1, 2, 3, 1, 4)
    for count in range(5):
        for left in itertools.combinations((1, 2, 3, 4), count):
            assert cut_log(entries, set(left)) == as_iceberg_cuts(entries, set(left))
    assert cut_log([], {1}) == []


async def test_time_travel_by_date_never_lies_after_an_expiry(tmp_path: Path):
    """The tagged first snapshot stays and the second goes: who asks for the second's time must not get the first."""
    lake = Lake.make(tmp_path)
    table = lake.create()
    ids = []
    for one in (1, 2, 3):
        ids.append(table.append(one))
        pause()
    table.tag("audit", ids[0])
    second = table.refresh().metadata.snapshot_by_id(ids[1]).timestamp_ms
    assert expired(await expire(await table.open())) == {ids[1]}
    at_second = table.refresh().snapshot_as_of_timestamp(second)
    assert at_second is None
    assert [entry.snapshot_id for entry in table.table.metadata.snapshot_log] == [ids[2]]
    assert table.table.snapshot_as_of_timestamp(int(datetime.now(UTC).timestamp() * 1000)).snapshot_id == ids[2]


async def test_a_log_without_a_gap_stays_whole(tmp_path: Path):
    table = Lake.make(tmp_path).create()
    ids = table.history()
    staged = table.stage(9)
    before = [entry.snapshot_id for entry in table.refresh().metadata.snapshot_log]
    table.set({"history.expire.min-snapshots-to-keep": "3"})
    assert expired(await expire(await table.open())) == {staged}
    after = [entry.snapshot_id for entry in table.refresh().metadata.snapshot_log]
    assert after == before[before.index(staged) + 1 :]
    assert table.snapshot_ids() == set(ids)


def test_a_table_that_is_gone_is_not_created_again(tmp_path: Path):
    lake = Lake.make(tmp_path)
    with pytest.raises(NoSuchTableError):
        Stager(lake.catalog, None)(None, ("db", "t"), (), ())
