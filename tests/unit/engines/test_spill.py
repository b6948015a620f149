"""DuckDB reads back from scratch exactly what was written there, however it was encoded."""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesweep.cleanup.addresses import PLACED_SCHEMA
from lakesweep.engines import scratch as spill
from lakesweep.engines.scratch import Spill

texts = st.none() | st.text(alphabet="ab/ü漢\0", max_size=12).map("s3://bucket/table/".__add__) | st.text(max_size=4)
COLUMNS = ["role", "address", "match_key", "inside", "outside", "guarded_name"]


@pytest.fixture(scope="module")
def db():
    with duckdb.connect() as opened:
        yield opened


def batch(addresses):
    count = len(addresses)
    columns = [
        pa.array(["read", "expired"] * count, pa.string()).slice(0, count),
        pa.array(addresses, pa.string()),
        pa.array([*addresses[1:], *addresses[:1]], pa.string()),
        pa.array([True, False] * count, pa.bool_()).slice(0, count),
        pa.array([False, True] * count, pa.bool_()).slice(0, count),
        pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PLACED_SCHEMA)


def read_back(db, batches):
    async def write(path):
        with ThreadPoolExecutor(1) as threads:
            async with Spill(path, PLACED_SCHEMA, threads) as spilling:
                for rows in batches:
                    await spilling.add(rows)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        asyncio.run(write(path))
        return db.sql(f"SELECT {', '.join(COLUMNS)} FROM read_parquet('{path}')").fetchall()


def rows_of(batches):
    return [tuple(row.values()) for rows in batches for row in rows.to_pylist()]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(texts, max_size=40).map(batch), max_size=4))
def test_scratch_gives_back_every_text_and_every_null(db, batches):
    assert read_back(db, batches) == rows_of(batches)


def test_row_groups_and_pages_do_not_run_into_each_other(db, monkeypatch):
    monkeypatch.setattr(spill, "CHUNK_ROWS", 10_000)
    long = [f"s3://bucket/{'directory' * (number % 40)}/{number}" for number in range(7000)]
    holes = [None if number % 3 else text for number, text in enumerate(long)]
    batches = [batch(long), batch(holes), batch(long[::-1]), batch([None] * 7000), batch(long)]
    assert sorted(read_back(db, batches), key=repr) == sorted(rows_of(batches), key=repr)
