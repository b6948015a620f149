"""Damaged metadata: the table is left alone with a reason that names the object, and others go on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders.iceberg import Lake
from tests.builders.iceberg_flow import clean, directory, plant

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=30))


@pytest.fixture
def table(tmp_path):
    table = Lake.make(tmp_path / "lake").create()
    table.history((1, 2, 3))
    plant(table, "data/orphan.parquet")
    return table


def current_metadata(table) -> Path:
    return Path(Location.parse(table.refresh().metadata_location).path)


def manifest_lists(table) -> list[Path]:
    return sorted((directory(table) / "metadata").glob("snap-*.avro"))


def manifests(table) -> list[Path]:
    return sorted((directory(table) / "metadata").glob("*-m0.avro"))


def header_length(data: bytes) -> int:
    """Up to and including the first sync marker: the marker is the file's last 16 bytes."""
    return data.index(data[-16:]) + 16


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_behind_the_header(data: bytes) -> bytes:
    return data[: header_length(data)]


def wrong_block_count(data: bytes) -> bytes:
    """The first block claims one entry more or less than it has (zigzag varint, small numbers are one byte)."""
    start = header_length(data)
    count = data[start]
    return data[:start] + bytes([count + 2 if count < 100 else count - 2]) + data[start + 1 :]


def flipped_sync_marker(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def emptied(data: bytes) -> bytes:
    return b""


def overwritten(data: bytes) -> bytes:
    return b"not an Avro file, nor anything else" * 10


DAMAGES = [cut_in_half, cut_behind_the_header, wrong_block_count, flipped_sync_marker, emptied, overwritten]


async def assert_left_alone(bench, table, damaged: Path):
    before = table.lake.files()
    run = await clean(bench, table, POLICY)
    assert run.outcome is Outcome.FAILED
    assert run.refusal.code == "indeterminate"
    assert damaged.name in run.reason
    assert table.lake.files() == before
    return run


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", [0, -1])
async def test_a_damaged_manifest_list_stops_the_table(bench, table, damage, which):
    path = manifest_lists(table)[which]
    path.write_bytes(damage(path.read_bytes()))
    await assert_left_alone(bench, table, path)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_manifest_stops_the_table(bench, table, damage):
    path = manifests(table)[0]
    path.write_bytes(damage(path.read_bytes()))
    await assert_left_alone(bench, table, path)


@pytest.mark.parametrize("find", [manifests, manifest_lists])
async def test_a_vanished_manifest_or_list_stops_the_table(bench, table, find):
    path = find(table)[0]
    path.unlink()
    await assert_left_alone(bench, table, path)


@pytest.mark.parametrize(
    "damage", [cut_in_half, emptied, overwritten, lambda data: data.replace(b'"snapshots"', b'"snapshotz"')]
)
async def test_damaged_table_metadata_stops_the_table(bench, table, damage):
    path = current_metadata(table)
    opened = await table.lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)
    path.write_bytes(damage(path.read_bytes()))
    before = table.lake.files()
    run = await bench.run(opened, POLICY)
    assert run.outcome is Outcome.FAILED
    assert path.name in run.reason
    assert table.lake.files() == before


async def test_vanished_table_metadata_stops_the_table(bench, table):
    path = current_metadata(table)
    opened = await table.lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)
    path.unlink()
    before = table.lake.files()
    run = await bench.run(opened, POLICY)
    assert run.outcome is Outcome.FAILED
    assert path.name in run.reason
    assert table.lake.files() == before


@pytest.mark.parametrize(("version", "code"), [(4, "unsupported"), (99, "unsupported")])
async def test_a_format_version_of_the_future_is_refused(bench, table, version, code):
    path = current_metadata(table)
    opened = await table.lake.format(storage=bench.storage, writer=bench.writer).open((await table.open()).ref)
    path.write_text(path.read_text().replace('"format-version":2', f'"format-version":{version}'))
    before = table.lake.files()
    run = await bench.run(opened, POLICY)
    assert run.outcome in (Outcome.REFUSED, Outcome.FAILED)
    assert run.refusal.code == code
    assert table.lake.files() == before
