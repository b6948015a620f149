"""A Delta table that a stream commits to keeps unreferenced files for as long as the stream may be down."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, sweep

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

SHORT = {"delta.deletedFileRetentionDuration": "interval 24 hours"}
HOURS_30 = NOW - timedelta(hours=30)
TXN = {"txn": {"appId": "query-1", "version": 4, "lastUpdated": 0}}


@pytest.fixture
def place(tmp_path: Path) -> LocalPlace:
    return LocalPlace(tmp_path / "lake" / "t")


def _writer(place: LocalPlace, **more: str) -> DeltaWriter:
    writer = DeltaWriter(place, configuration=SHORT | more, features=("v2Checkpoint",))
    writer.create(days_ago(40))
    writer.add("live.parquet", at=days_ago(39))
    return writer


@pytest.mark.parametrize("kind", [None, "classic", "multipart", "v2-json", "v2-parquet"])
async def test_files_of_a_stream_by_its_transactions_wait(place, kind):
    writer = _writer(place)
    writer.commit([TXN], days_ago(3))
    if kind:
        writer.checkpoint(kind, at=days_ago(2))
        writer.add("more.parquet", at=days_ago(1))
    place.put("pending.parquet", b"data", HOURS_30)
    place.put("old.parquet", b"data", NOW - timedelta(hours=169))
    swept = await sweep(place, execute=True)
    assert swept.data == {"old.parquet"}
    assert "application query-1 writes to this table" in (swept.run.stream or "")


async def test_files_of_a_stream_by_its_operation_wait(place):
    writer = _writer(place)
    writer.commit([], days_ago(3), info={"operation": "STREAMING UPDATE"})
    place.put("pending.parquet", b"data", HOURS_30)
    assert not (await sweep(place)).data


async def test_files_of_a_stream_whose_transactions_are_forgotten_wait(place):
    _writer(place, **{"delta.setTransactionRetentionDuration": "interval 1 day"})
    place.put("pending.parquet", b"data", HOURS_30)
    assert not (await sweep(place)).data


async def test_files_of_a_table_without_streams_wait_as_the_table_says(place):
    _writer(place)
    place.put("pending.parquet", b"data", HOURS_30)
    swept = await sweep(place)
    assert swept.data == {"pending.parquet"}
    assert swept.run.stream is None


async def test_a_streams_wait_is_the_setting(place):
    _writer(place).commit([TXN], days_ago(3))
    place.put("pending.parquet", b"data", HOURS_30)
    assert (await sweep(place, policy=CleanupPolicy(stream_state=timedelta(hours=29)))).data
    assert not (await sweep(place, policy=CleanupPolicy(stream_state=timedelta(hours=31)))).data


async def test_log_cleanup_never_loses_the_newest_transaction(place):
    rows = pa.table({"id": pa.array([1], pa.int64())})
    short = {"delta.logRetentionDuration": "interval 1 day"}
    for version in range(3):
        progress = CommitProperties(app_transactions=[Transaction("query-1", version)])
        write_deltalake(str(place.path), rows, mode="append", configuration=short, commit_properties=progress)
    DeltaTable(str(place.path)).create_checkpoint()
    for _ in range(2):
        write_deltalake(str(place.path), rows, mode="append")
    for number, file in enumerate(sorted((place.path / "_delta_log").iterdir())):
        at = (days_ago(9) + timedelta(minutes=number)).timestamp()
        os.utime(file, (at, at))
    swept = await sweep(place, execute=True)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert swept.run.expired_snapshots == ("0", "1")
    assert DeltaTable(str(place.path)).transaction_version("query-1") == 2
