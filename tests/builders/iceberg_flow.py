"""What test_iceberg_ways_to_lose_data.py and its neighbours are made of."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.builders.cycles import Bench
from tests.builders.iceberg import LakeTable

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=30), batch_size=7)


async def clean(bench: Bench, table: LakeTable, policy: CleanupPolicy = POLICY, *, execute: bool = True):
    ours = table.lake.format(storage=bench.storage, writer=bench.writer)
    return await bench.run(await ours.open((await table.open()).ref), policy, execute=execute)


def directory(table: LakeTable) -> Path:
    return Path(Location.parse(table.table.location()).path)


def plant(table: LakeTable, name: str, data: bytes = b"never committed") -> Path:
    path = directory(table) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def live_files(table: LakeTable) -> list[Path]:
    return [Path(Location.parse(task.file.file_path).path) for task in table.refresh().scan().plan_files()]
