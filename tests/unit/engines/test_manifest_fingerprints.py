"""Fingerprints stand in for references only where nothing else is asked, and only if the same function made them."""

import asyncio
import contextlib
import json
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.contract.engine_lake import YOUNG, ListLake, decoder

from lakesweep.cleanup import addresses, plan_file
from lakesweep.cleanup.addresses import Role
from lakesweep.engines import fingerprints, manifest_fingerprints, sources
from lakesweep.engines.fingerprints import Fingerprints
from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.model.errors import EngineFailed, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.table import MatchBy
from lakesweep.storage.memory import MemoryStorage, bucket


class Watched(FingerprintCache):
    """Knows which sources were loaded in full."""

    def __init__(self, directory):
        super().__init__(directory, limit_bytes=10**8, key=b"k" * 32)
        self.in_full = []

    def load(self, source):
        self.in_full.append(source.location.name)
        return super().load(source)


@pytest.fixture
def lake():
    return ListLake()


async def planned(lake, folder, cache):
    """A plan of the lake by a fresh engine with this cache."""
    engine = InProcessEngine(
        storage=MemoryStorage(),
        decoder=decoder,
        cache=cache,
        scratch_dir=folder / "scratch",
        memory_limit="256MB",
        threads=2,
    )
    async with contextlib.aclosing(engine):
        return await engine.find_orphans(lake.job(folder / "plan"))


@pytest.fixture
def plan(lake, tmp_path):
    """Plan the lake with a cache that is kept between calls; gives the plan, its paths and what was loaded in full."""

    async def plan():
        cache = Watched(tmp_path / "cache")
        made = await planned(lake, tmp_path, cache)
        rows = [row.path for batch in plan_file.read_batches(made.rows_path) for row in batch]
        return made, rows, cache.in_full

    return plan


@pytest.fixture(scope="module")
def prints():
    return fingerprints.shared()


@pytest.fixture(scope="module")
def db():
    with duckdb.connect() as opened:
        yield opened


@given(texts=st.lists(st.text(), max_size=30))
def test_a_column_is_hashed_as_its_texts_are_one_by_one(prints, db, texts):
    one_by_one = [db.execute("SELECT hash(?::VARCHAR)", [text]).fetchone()[0] for text in texts]
    assert prints.of(pa.array(texts, pa.string())).to_pylist() == one_by_one


def test_fingerprints_of_a_long_column_are_in_its_order(prints):
    texts = pa.array([f"s3://b/t/{number % 70_001}" for number in range(300_000)])
    found = prints.of(texts)
    assert found.slice(0, 10).to_pylist() == prints.of(texts.slice(0, 10)).to_pylist()
    assert found.slice(70_001, 150_000).equals(found.slice(0, 150_000))
    assert len(found.slice(0, 70_001).unique()) == 70_001


def test_the_cache_identity_is_that_of_the_function(prints):
    assert Fingerprints("hash(text)").identity == prints.identity
    assert Fingerprints("hash(text || '')").identity == prints.identity
    assert Fingerprints("hash(lower(text) || text)").identity != prints.identity
    longer = "CASE WHEN strlen(text) > 1190 THEN hash(text || 'x') ELSE hash(text) END"
    assert Fingerprints(longer).identity != prints.identity


async def test_a_steady_cycle_loads_no_source_in_full(plan, lake):
    for number in range(5):
        lake.source([lake.put(f"s3://b/t/{number}-{row}.data") for row in range(3)])
    stray = lake.put("s3://b/t/stray.data")
    first, rows, in_full = await plan()
    assert (rows, len(in_full)) == ([stray], 5)
    second, rows, in_full = await plan()
    assert (rows, in_full) == ([stray], [])
    assert second.digest == first.digest
    assert second.references == first.references == 15
    lake.source([stray])
    third, rows, in_full = await plan()
    assert (rows, in_full) == ([], ["source-5"])
    assert third.matched == 16


async def test_of_a_missing_file_only_its_own_source_is_loaded_to_name_it(plan, lake):
    for number in range(4):
        lake.source([lake.put(f"s3://b/t/{number}-{row}.data") for row in range(3)])
    await plan()
    del bucket("b").objects["t/2-1.data"]
    lake.put("s3://b/t/elsewhere/2-1.data")
    made, _, in_full = await plan()
    assert made.missing == ("s3://b/t/2-1.data",)
    assert made.missing_clash == ("2-1.data",)
    assert in_full == ["source-2"]


async def test_what_may_be_released_is_compared_by_its_address(plan, lake):
    spelled = [lake.put(f"s3://b/t/{number}.data") for number in range(4)]
    lake.source(spelled[:2])
    lake.source(spelled[2:])
    await plan()
    lake.released = ["s3://b//t/0.data", spelled[1]]
    _, rows, in_full = await plan()
    assert rows == [spelled[1]]  # the other has other slashes: no proof
    assert in_full == ["source-0"]


async def test_a_source_that_only_expiring_snapshots_use_is_read_for_its_addresses(plan, lake):
    freed = lake.put("s3://b/t/freed.data", YOUNG)
    lake.source([freed])
    await plan()
    lake.sources[0] = replace(lake.sources[0], retained=False)
    _, rows, in_full = await plan()
    assert (rows, in_full) == ([freed], ["source-0"])


async def test_fingerprints_never_replace_an_expired_source(lake, tmp_path):
    retained = lake.source(["s3://b/t/1.data"])
    expired = replace(retained, retained=False)
    roots, cache = [Location.parse("s3://b/t")], FingerprintCache(tmp_path, limit_bytes=10**8, key=b"k" * 32)
    scope = {"match_by": MatchBy.ADDRESS, "roots": roots, "released": pa.array([], "string")}
    first = manifest_fingerprints.SourceFingerprints(cache, [retained], **scope)
    first.add(retained, addresses.place(pa.array(["s3://b/t/1.data"]), Role.READ, MatchBy.ADDRESS, roots))
    first.flush()
    first.save()
    second = manifest_fingerprints.SourceFingerprints(cache, [retained, expired], **scope)
    assert [batch.column("source").to_pylist() for batch in second.stored()] == [[0]]
    assert second.rest() == [expired]


async def test_references_that_guard_names_elsewhere_are_always_read(plan, lake):
    lake.source(["s3://old-bucket/t/1.data", lake.put("s3://b/t/2.data")])
    lake.put("s3://b/t/1.data")
    for _ in range(2):
        _, rows, in_full = await plan()
        assert (rows, in_full) == ([], ["source-0"])


async def test_fingerprints_of_other_roots_or_functions_do_not_count(plan, lake, monkeypatch):
    lake.source([lake.put("s3://b/t/1.data")])
    await plan()
    lake.roots = ("s3://b",)
    assert (await plan())[2] == ["source-0"]
    assert (await plan())[2] == []
    monkeypatch.setattr(fingerprints, "EXPRESSION", "hash(text || 'another')")
    assert (await plan())[2] == ["source-0"]
    made, rows, in_full = await plan()
    assert (made.references, rows, in_full) == (1, [], [])


async def test_damaged_digests_are_made_anew(plan, lake, tmp_path):
    stray = lake.put("s3://b/t/stray.data")
    for number in range(3):
        lake.source([lake.put(f"s3://b/t/{number}.data")])
    await plan()
    for path in (tmp_path / "cache").glob("*/*"):
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    reads = []
    bucket("metadata").faults = lambda call, address: reads.append(address) if call == "read" else None
    _, rows, _ = await plan()
    assert (rows, len(reads)) == ([stray], 3)
    _, rows, in_full = await plan()
    assert (rows, in_full, len(reads)) == ([stray], [], 3)


async def test_references_are_cached_only_of_sources_that_are_needed_in_full(plan, lake, tmp_path):
    lake.source([lake.put("s3://b/t/1.data"), lake.put("s3://b/t/2.data")])
    lake.source([lake.put("s3://b/t/freed.data", YOUNG)], retained=False)
    await plan()
    cache = FingerprintCache(tmp_path / "cache", limit_bytes=10**8, key=b"k" * 32)
    assert cache.load(lake.sources[0]) is None
    assert cache.load(lake.sources[1]).num_rows == 1
    assert (await plan())[2] == ["source-1"]
    del bucket("b").objects["t/2.data"]
    made, _, in_full = await plan()
    assert (made.missing, in_full) == (("s3://b/t/2.data",), ["source-1", "source-0"])
    assert cache.load(lake.sources[0]).num_rows == 2


async def test_what_was_hashed_before_a_source_failed_need_not_be_read_again(plan, lake, monkeypatch):
    monkeypatch.setattr(manifest_fingerprints, "_HASHED_AT_ONCE", 1)
    monkeypatch.setattr(sources, "_IN_FLIGHT_BYTES", 1)  # one after the other
    for number in range(4):
        lake.source([lake.put(f"s3://b/t/{number}.data")])
    held = bucket("metadata").objects.pop(lake.sources[3].location.path)
    with pytest.raises(Unreadable):
        await plan()
    bucket("metadata").objects[lake.sources[3].location.path] = held
    assert (await plan())[2] == ["source-3"]


def moved(source, name):
    """The same source under another name."""
    objects = bucket("metadata").objects
    objects[name] = objects[source.location.path]
    return replace(source, location=Location.parse(f"s3://metadata/{name}"))


async def test_a_pack_forgets_sources_that_are_gone_when_new_ones_come(plan, lake):
    for number in range(3):
        lake.source([lake.put(f"s3://b/t/{number}.data")])
    await plan()
    first, *others = lake.sources
    lake.sources[:] = others
    lake.source([lake.put("s3://b/t/new.data")])
    lake.sources[-1] = moved(lake.sources[-1], "source-new")
    assert (await plan())[2] == ["source-new"]
    lake.sources.append(moved(first, "source-0"))
    assert (await plan())[2] == ["source-0"]
    assert (await plan())[2] == []


@pytest.mark.parametrize(("name", "bytes_at_once"), [("_SAVED_AT_ONCE", 1), ("_PACKED_AT_ONCE", 1)])
async def test_fingerprints_are_all_there_however_they_are_saved(plan, lake, monkeypatch, name, bytes_at_once):
    monkeypatch.setattr(manifest_fingerprints, name, bytes_at_once)
    monkeypatch.setattr(manifest_fingerprints, "_HASHED_AT_ONCE", 2)
    for number in range(7):
        lake.source([lake.put(f"s3://b/t/{number}-{row}.data") for row in range(number)])
    first, _, in_full = await plan()
    assert len(in_full) == 7
    second, rows, in_full = await plan()
    assert (rows, in_full, second.references) == ([], [], first.references)
    assert second.matched == 21


async def test_a_source_changed_in_place_is_found_by_what_seems_lost(plan, lake):
    lake.source([lake.put("s3://b/t/1.data")])
    await plan()
    del bucket("b").objects["t/1.data"]
    live = lake.put("s3://b/t/2.data")
    lake.put("s3://metadata/source-0", data=json.dumps([live]).encode())
    with pytest.raises(EngineFailed, match="was modified in place"):
        await plan()
    made, rows, in_full = await plan()
    assert (made.missing, made.matched, rows, in_full) == ((), 1, [], ["source-0"])


async def test_a_source_changed_in_place_is_found_by_a_missing_file(plan, lake):
    lake.source([lake.put("s3://b/t/1.data"), lake.put("s3://b/t/2.data")])
    await plan()
    del bucket("b").objects["t/1.data"]
    other = lake.put("s3://b/t/3.data")
    lake.put("s3://metadata/source-0", data=json.dumps(["s3://b/t/1.data", other]).encode())
    with pytest.raises(EngineFailed, match="was modified in place"):
        await plan()
    made, rows, _ = await plan()
    assert (made.missing, rows) == (("s3://b/t/1.data",), ["s3://b/t/2.data"])


async def test_a_table_compared_by_names_has_digests_of_its_own(plan, lake):
    lake.source([lake.put("s3://b/t/1.data")])
    await plan()
    lake.match_by = MatchBy.NAME
    assert (await plan())[1:] == ([], ["source-0"])


async def test_sources_that_cannot_be_cached_leave_the_pack_alone(plan, lake, tmp_path):
    lake.source([lake.put("s3://b/t/1.data")])
    await plan()
    lake.source([lake.put("s3://b/t/2.data")], size_bytes=None)
    (pack,) = (tmp_path / "cache").glob("*/*")
    before = pack.stat().st_ino
    for _ in range(2):
        made, rows, in_full = await plan()
        assert (made.matched, rows, in_full) == (2, [], ["source-1"])
    assert pack.stat().st_ino == before


async def test_two_processes_that_save_one_pack_lose_digests_but_never_mix_them(lake, tmp_path):
    """Each has read its own state of the table; whoever saves last has left what it knows."""
    ones = [lake.source([f"s3://b/t/{number}.data"]) for number in range(4)]
    cache = FingerprintCache(tmp_path, limit_bytes=10**8, key=b"k" * 32)

    def started(sources):
        scope = {"match_by": MatchBy.ADDRESS, "roots": [Location.parse("s3://b/t")], "released": pa.array([], "string")}
        found = manifest_fingerprints.SourceFingerprints(cache, sources, **scope)
        assert list(found.stored()) == []
        for source in sources:
            found.add(source, addresses.place(pa.array([spelled(source)]), Role.READ, MatchBy.ADDRESS, scope["roots"]))
        found.flush()
        return found

    def spelled(source):
        return f"s3://b/t/{source.location.name.rpartition('-')[2]}.data"

    early, late = started(ones[:3]), started(ones[2:])
    early.save()
    late.save()
    prints = fingerprints.shared()
    left = {row["source"]: row["prints"] for pack in cache.load_pack(late._scope) for row in pack.to_pylist()}
    assert left == {source.cache_key: prints.of(pa.array([spelled(source)])).to_pylist() for source in ones[2:]}


CHOICE = st.sets(st.integers(0, 5), max_size=6)


@settings(deadline=None, max_examples=4, phases=[Phase.generate])
@given(cycles=st.lists(st.tuples(CHOICE, CHOICE, CHOICE), min_size=2, max_size=3))
def test_a_plan_with_a_used_cache_is_the_plan_without_one(cycles, tmp_path_factory):
    """Each cycle has its choice of retained and of expired sources, and of names that are released."""
    folder, lake = tmp_path_factory.mktemp("cycles"), ListLake()
    files = [lake.put(f"s3://b/t/{number}.data") for number in range(8)]
    every = [lake.source([*files[number : number + 3], "s3://b/t//6.data", "s3://b/t/gone"]) for number in range(6)]

    def plan(cache):
        return replace(asyncio.run(planned(lake, folder, cache)), timings={})

    for retained, expired, released in cycles:
        lake.sources = [replace(every[number], retained=number in retained) for number in retained | expired]
        lake.released = [files[number] for number in released]
        cache = FingerprintCache(folder / "cache", limit_bytes=10**8, key=b"k" * 32)
        assert plan(cache) == plan(None)
