"""What runs in a Spark worker, run here: the same code needs no Spark to be looked at."""

import asyncio
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.engine_lake import CUTOFF, OLD, YOUNG, ListLake, ListLayout, decoder

import lakesweep
from lakesweep.engines import fingerprints
from lakesweep.engines.listing import RootShard
from lakesweep.engines.spark import executor, worker_rows
from lakesweep.engines.spark.engine import balanced
from lakesweep.engines.spark.errors import WorkerFault, understood
from lakesweep.model.errors import EngineFailed, Unavailable, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.table import MatchBy
from lakesweep.storage.memory import MemoryStorage, bucket

sources = st.builds(
    ReferenceSource,
    location=st.builds(Location, st.just("s3"), st.just("b"), st.text(max_size=20)),
    format=st.sampled_from(FormatName),
    kind=st.text(max_size=5),
    retained=st.booleans(),
    size_bytes=st.none() | st.integers(0, 10**9),
    entries=st.none() | st.integers(0, 10**6),
    context=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2).map(tuple),
)


def roots(*addresses):
    return tuple(RootShard(root=Location.parse(address)) for address in addresses)


def numbers(*pieces):
    return iter([pa.record_batch({"id": pa.array(pieces, pa.int64())})])


def rows(batches):
    return [row for batch in batches for row in batch.to_pylist()]


@given(found=st.lists(sources, min_size=1, max_size=5))
def test_sources_are_the_same_after_the_way_to_a_worker(found):
    assert executor.load_piece(executor.save_piece(found)) == found


@pytest.mark.parametrize("left", range(4))
def test_sources_that_were_cut_off_on_the_way_are_missed(left):
    lake = ListLake()
    for number in range(3):
        lake.source([f"s3://b/t/{number}.data"])
    text = zlib.decompress(executor.save_piece(lake.sources)).decode()
    with pytest.raises(EngineFailed, match="were truncated"):
        executor.load_piece(zlib.compress("\n".join(text.split("\n")[:left]).encode()))


@given(found=st.lists(sources, max_size=60), cores=st.integers(1, 8))
def test_every_source_is_in_exactly_one_piece_and_no_piece_is_empty(found, cores):
    pieces = balanced(found, cores)
    assert sorted(map(repr, found)) == sorted(repr(source) for piece in pieces for source in piece)
    assert all(pieces)


def test_pieces_are_balanced_by_bytes():
    lake = ListLake()
    sizes = [size * 10_000 for size in (900, *[100] * 9, *[10] * 20)]
    found = [lake.source([], size_bytes=size) for size in sizes]
    weights = [sum(source.size_bytes for source in piece) // 10_000 for piece in balanced(found, 1)]
    assert len(weights) == 3
    assert max(weights) <= 900
    assert min(weights) >= 500


def test_sources_of_little_more_than_no_bytes_are_one_piece():
    lake = ListLake()
    found = [lake.source([], size_bytes=8_000) for _ in range(20)]
    assert len(balanced(found, 64)) == 1
    assert len(balanced([*found, lake.source([], size_bytes=1024 * 1024)], 64)) == 2


def test_sources_of_no_bytes_leave_no_piece_empty():
    lake = ListLake()
    assert all(balanced([lake.source([], size_bytes=0) for _ in range(20)], 2))


def test_a_root_is_listed_with_its_match_keys():
    lake = ListLake()
    lake.put("s3://b/t//x.data")
    lake.put("s3://c/u/y.data")
    shards = roots("s3://b/t", "s3://c/u")
    work = executor.listing(MemoryStorage, shards, MatchBy.ADDRESS, keys_only=False)
    found = rows(work(numbers(1, 0)))
    assert [(row["path"], row["match_key"]) for row in found] == [
        ("s3://c/u/y.data", None),
        ("s3://b/t//x.data", "s3://b/t/x.data"),
    ]


def test_a_listing_that_fails_half_way_is_an_error_of_the_task():
    lake = ListLake()
    for number in range(2500):
        lake.put(f"s3://b/t/{number}.data")
    calls = []

    def fail(call, address):
        calls.append(call)
        if calls.count("list_page") == 2:
            raise Unavailable(address, "500")

    bucket("b").faults = fail
    work = executor.listing(MemoryStorage, roots("s3://b/t"), MatchBy.ADDRESS, keys_only=False)
    with pytest.raises(WorkerFault) as caught:
        rows(work(numbers(0)))
    assert isinstance(understood(str(caught.value)), Unavailable)


def read(lake, firsts=()):
    pieces = executor.Pieces(sources=[executor.save_piece(lake.sources)], firsts=firsts)
    work = executor.reading(MemoryStorage, decoder, pieces, MatchBy.ADDRESS, (Location.parse("s3://b/t"),))
    return rows(work(numbers(0)))


def test_sources_are_placed_and_skipped_ones_are_counted():
    lake = ListLake()
    lake.source(["s3://b/t/x.data"])
    lake.source(["s3://b/t/y.data"], retained=False)
    lake.source(["s3://b/t/z.data"], retained=False, data=b"[")
    found = {(row["role"], row["address"]) for row in read(lake)}
    assert found == {("read", "s3://b/t/x.data"), ("expired", "s3://b/t/y.data"), (worker_rows.SKIPPED, None)}


def test_fingerprints_stand_in_for_references_but_not_where_addresses_decide():
    lake = ListLake()
    lake.source(["s3://b/t/x.data"])
    lake.source(["s3://b/t/y.data"], retained=False)
    lake.source(["s3://other/z.data"])
    lake.source(["s3://b/t/w.data"])
    found = {(row["role"], row["address"], row["source"], row["print"]) for row in read(lake, firsts=[40])}
    named = pa.array(["s3://b/t/x.data", "s3://b/t/y.data", "s3://other/z.data", "s3://b/t/w.data"])
    prints = dict(zip("xyzw", worker_rows.prints(named).to_pylist(), strict=True))
    assert found == {
        (worker_rows.STAND_IN, None, 40, prints["x"]),
        ("expired", "s3://b/t/y.data", None, prints["y"]),
        ("read", "s3://other/z.data", None, prints["z"]),
        (worker_rows.STAND_IN, None, 43, prints["w"]),
    }


def test_an_unreadable_retained_source_fails_the_task():
    lake = ListLake()
    bad = lake.source(["s3://b/t/x.data"], data=b"[")
    with pytest.raises(WorkerFault) as caught:
        read(lake)
    error = understood(str(caught.value))
    assert isinstance(error, Unreadable)
    assert error.address == bad.location.raw


NOTHING = executor.Pieces(sources=())
WORK = {
    "listing": lambda: executor.listing(MemoryStorage, roots("s3://b/t"), MatchBy.ADDRESS, keys_only=True),
    "looking": lambda: executor.looking(MemoryStorage, CUTOFF),
    "reading": lambda: executor.reading(MemoryStorage, decoder, NOTHING, MatchBy.ADDRESS, []),
    "judging": lambda: executor.judging(ListLayout(), CUTOFF),
}


@pytest.mark.parametrize("kind", WORK)
def test_workers_of_another_version_are_refused(monkeypatch, kind):
    """Also those that join when others have begun."""
    work = WORK[kind]()
    monkeypatch.setattr(lakesweep, "__version__", "0.0.0")
    with pytest.raises(WorkerFault) as caught:
        rows(work(iter([])))
    error = understood(str(caught.value))
    assert isinstance(error, EngineFailed)
    assert "the Spark executors have lakesweep 0.0.0" in str(error)


@pytest.mark.parametrize("kind", ["listing", "reading"])
def test_workers_that_make_other_fingerprints_are_refused(monkeypatch, kind):
    """Both sides of the join must be hashed alike, or live files look unreferenced."""
    work = WORK[kind]()
    monkeypatch.setattr(fingerprints.shared(), "identity", "another")
    with pytest.raises(WorkerFault, match="another hash function"):
        rows(work(iter([])))


def test_a_stream_hands_on_everything_and_then_the_error():
    async def produce():
        for number in range(20):
            await asyncio.sleep(0)
            yield number
        raise RuntimeError("broken")

    seen = []
    with pytest.raises(RuntimeError, match="broken"):
        seen.extend(executor.streamed(produce))
    assert seen == list(range(20))


def test_of_the_suspects_those_that_are_there_come_back():
    lake = ListLake()
    lake.put("s3://b/t/unlisted.data", OLD)
    there = lake.put("s3://b/t//x.data", YOUNG)
    keys = ["s3://b/t/x.data", "s3://b/t/y.data", "s3://b/t/unlisted.data"]
    suspects = pa.record_batch({"match_key": keys, "path": [there, *keys[1:]]})
    found = rows(executor.looking(MemoryStorage, CUTOFF)(iter([suspects])))
    assert sorted(row["match_key"] or "" for row in found) == ["", "s3://b/t/x.data"]
