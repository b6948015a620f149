"""What executors read goes into the cache only whole, and only if this service's own code has read it."""

import pyarrow as pa
import pytest
from tests.contract.engine_lake import ListLake, decoder

from lakesweep.engines import common, manifest_cache
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.manifest_fingerprints import SourceFingerprints
from lakesweep.engines.spark import executor
from lakesweep.engines.spark.known_sources import LEARNED, KnownSources
from lakesweep.engines.spark.worker_rows import OTHER_CODE, READ_SCHEMA, STAND_IN, remark
from lakesweep.model.location import Location
from lakesweep.ports.table import MatchBy
from lakesweep.storage.memory import MemoryStorage

ROOTS = (Location.parse("s3://b/t"),)


@pytest.fixture
def cache(tmp_path):
    return FingerprintCache(tmp_path / "cache", limit_bytes=10**8, key=b"k" * 32)


@pytest.fixture
def lake():
    made = ListLake()
    for number in range(3):
        made.source([f"s3://b/t/{number}-{row}.data" for row in range(4)], at_least=4)
    return made


def known(cache, lake):
    released = pa.array([], pa.string())
    fingerprints = SourceFingerprints(cache, lake.sources, match_by=MatchBy.ADDRESS, roots=ROOTS, released=released)
    return KnownSources(cache, fingerprints, lake.sources, common.placing(MatchBy.ADDRESS, ROOTS))


def read(lake, cached_by=None):
    """What an executor makes of the sources, in one piece."""
    pieces = executor.Pieces(sources=[executor.save_piece(lake.sources)], firsts=[0], cached_by=cached_by)
    work = executor.reading(MemoryStorage, decoder, pieces, MatchBy.ADDRESS, ROOTS)
    return pa.Table.from_batches(work(iter([pa.record_batch({"id": [0]})])), READ_SCHEMA)


def in_batches(rows, size):
    return [batch.select(LEARNED) for batch in rows.combine_chunks().to_batches(max_chunksize=size)]


def remembered(cache, lake):
    """How many references the next cycle finds in the cache, and how many sources it must read."""
    found = known(cache, lake)
    rows = sum(batch.num_rows for batch in found.rows())
    return rows, len(found.rest)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100])
def test_what_was_read_is_known_however_the_rows_are_cut(cache, lake, size):
    assert remembered(cache, lake) == (0, 3)
    known(cache, lake).learn(in_batches(read(lake), size), lake.sources)
    assert remembered(cache, lake) == (12, 0)


def test_rows_of_a_source_that_are_not_together_leave_nothing(cache, lake):
    known(cache, lake).learn(in_batches(read(lake), 100), lake.sources)
    rows = read(lake)
    apart = pa.concat_tables([rows.slice(0, 2), rows.slice(4), rows.slice(2, 2)])
    again = known(cache, lake)
    again.learn(in_batches(apart, 100), lake.sources)
    assert remembered(cache, lake) == (0, 3)


def test_fewer_rows_than_metadata_records_are_not_kept(cache, lake):
    known(cache, lake).learn(in_batches(read(lake).slice(0, 10), 100), lake.sources)
    assert remembered(cache, lake) == (8, 1)


def test_what_other_code_has_read_is_not_kept(cache, lake, monkeypatch):
    ours = manifest_cache.code_identity()
    assert OTHER_CODE not in read(lake, ours).column("role").to_pylist()
    monkeypatch.setattr(manifest_cache, "code_identity", lambda: "another")
    rows = read(lake, ours)
    assert rows.column("role").to_pylist() == [OTHER_CODE, *[STAND_IN] * 12]
    known(cache, lake).learn(in_batches(rows, 100), lake.sources)
    assert remembered(cache, lake) == (0, 3)


def test_other_code_in_any_batch_counts(cache, lake):
    rows = read(lake)
    late = pa.concat_tables([rows, pa.Table.from_batches([remark(OTHER_CODE)])])
    known(cache, lake).learn(in_batches(late, 5), lake.sources)
    assert remembered(cache, lake) == (0, 3)


def test_a_source_that_is_cached_in_full_is_not_read_either(cache, lake):
    source = lake.source(["s3://elsewhere/x.data", "s3://b/t/y.data"])
    cache.store(source, pa.record_batch({"path": ["s3://elsewhere/x.data", "s3://b/t/y.data"]}).cast(PATHS))
    found = known(cache, lake)
    rows = [row for batch in found.rows() for row in batch.to_pylist()]
    assert [row["address"] for row in rows] == ["s3://elsewhere/x.data", "s3://b/t/y.data"]
    assert [row["outside"] for row in rows] == [True, False]
    assert found.rest == lake.sources[:3]


PATHS = pa.schema([pa.field("path", pa.string(), nullable=False)])
