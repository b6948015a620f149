"""What is special about the engine inside this process: bounded work, the cache, clean ends."""

import asyncio
import contextlib
import json
import threading

import pyarrow as pa
import pytest
from tests.contract.engine_lake import OLD, YOUNG, ListLake, decode, decoder

from lakesweep.cleanup import plan_file
from lakesweep.engines import common, duckdb_plan, fingerprints, inprocess, sources
from lakesweep.engines import scratch as spill
from lakesweep.engines.common import statements
from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.registry import open_inprocess
from lakesweep.engines.scratch import Spill, scratch
from lakesweep.model.errors import EngineFailed, Unreadable
from lakesweep.model.files import Verdict
from lakesweep.storage.memory import MemoryStorage, bucket


@pytest.fixture
def lake():
    return ListLake()


@pytest.fixture
def open_engine(tmp_path):
    def open_engine(**changes):
        fields = {
            "storage": MemoryStorage(),
            "decoder": decoder,
            "cache": None,
            "scratch_dir": tmp_path / "scratch",
            "memory_limit": "256MB",
            "threads": 2,
        }
        return contextlib.aclosing(InProcessEngine(**{**fields, **changes}))

    return open_engine


def candidates(plan):
    return {row.path for batch in plan_file.read_batches(plan.rows_path) for row in batch}


async def test_a_fingerprint_collision_can_only_keep_a_file(open_engine, lake, tmp_path, monkeypatch):
    live = [lake.put(f"s3://b/t/{'x' * number}.data") for number in range(1, 9)]
    strays = [lake.put(f"s3://b/t/{'y' * number}.data") for number in range(6, 12)]
    freed = lake.put("s3://b/t/freed-a-name-of-its-own-length.data", YOUNG)
    lake.put("s3://b/t/young-and-of-the-same-length.....data", YOUNG)
    lake.source(live)
    lake.source([freed], retained=False)
    monkeypatch.setattr(fingerprints, "EXPRESSION", "length(text)")
    async with open_engine() as engine:
        plan = await engine.find_orphans(lake.job(tmp_path / "plan"))
    assert candidates(plan) == {*strays[3:], freed}
    assert plan.verdicts[Verdict.LIVE].files == len(live) + 3
    assert plan.verdicts[Verdict.YOUNG].files == 1


async def test_a_full_second_cycle_reads_no_source_again(open_engine, lake, tmp_path):
    lake.source([lake.put("s3://b/t/x.data")])
    lake.source([lake.put("s3://b/t/freed.data", YOUNG)], retained=False)
    lake.put("s3://b/t/stray.data")
    reads = []
    bucket("metadata").faults = lambda call, address: reads.append(address) if call == "read" else None
    plans = []
    for _ in range(2):
        async with open_engine(cache=FingerprintCache(tmp_path / "cache", limit_bytes=10**7, key=b"k" * 32)) as engine:
            plans.append(await engine.find_orphans(lake.job(tmp_path / "plan")))
    assert len(reads) == 2
    assert plans[0].digest == plans[1].digest
    assert plans[1].candidates.files == 2


async def test_a_cached_source_that_cannot_be_placed_is_judged_as_a_read_one(open_engine, lake, tmp_path):
    cache = FingerprintCache(tmp_path / "cache", limit_bytes=10**7, key=b"k" * 32)
    async with open_engine(cache=cache) as engine:
        bad = lake.source(["relative"])
        lake.source(["relative"], retained=False)
        assert len([pair async for pair in engine.read_references(lake.sources)]) == 2
        with pytest.raises(Unreadable, match=bad.location.raw):
            await engine.find_orphans(lake.job(tmp_path / "plan"))
        del lake.sources[0]
        plan = await engine.find_orphans(lake.job(tmp_path / "plan"))
    assert plan.skipped_sources == 1


class Counting(MemoryStorage):
    """Knows how many reads, and how many bytes of them, were under way at most."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0

    async def read(self, location, limit=None):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        data = await super().read(location, limit)
        self.now -= 1
        return data


async def test_at_most_so_many_sources_are_read_at_a_time(open_engine, lake):
    for _ in range(20):
        lake.source(["s3://b/t/x.data"])
    storage = Counting()
    async with open_engine(storage=storage, concurrency=4) as engine:
        assert len([pair async for pair in engine.read_references(lake.sources)]) == 20
    assert storage.most == 4


async def test_large_sources_are_read_by_their_bytes_and_a_huge_one_alone(open_engine, lake, monkeypatch):
    for _ in range(9):
        lake.source(["s3://b/t/x.data"])
    size = len(json.dumps(["s3://b/t/x.data"]))
    storage = Counting()
    for limit, expected in ((size * 2, 2), (size // 2, 1)):
        monkeypatch.setattr(sources, "_IN_FLIGHT_BYTES", limit)
        storage.most = 0
        async with open_engine(storage=storage, concurrency=8) as engine:
            assert len([pair async for pair in engine.read_references(lake.sources)]) == 9
        assert storage.most == expected


async def test_a_reader_that_stops_early_leaves_no_task_behind(open_engine, lake):
    for _ in range(10):
        lake.source(["s3://b/t/x.data"])
    async with open_engine() as engine:
        async with contextlib.aclosing(engine.read_references(lake.sources)) as found:
            async for _ in found:
                break
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("read ")] == []


async def test_decoding_happens_off_the_event_loop(open_engine, lake):
    lake.source(["s3://b/t/x.data"])
    threads = set()

    def noting(source, data):
        threads.add(threading.current_thread())
        return decode(source, data)

    async with open_engine(decoder=lambda _: noting) as engine:
        assert [pair async for pair in engine.read_references(lake.sources)]
    assert threading.main_thread() not in threads


async def test_a_bug_in_a_decoder_is_not_taken_for_a_damaged_source(open_engine, lake, tmp_path):
    lake.source(["s3://b/t/x.data"], retained=False)

    def broken(source, data):
        raise ZeroDivisionError

    async with open_engine(decoder=lambda _: broken) as engine:
        with pytest.raises(ZeroDivisionError):
            await engine.find_orphans(lake.job(tmp_path / "plan"))


async def test_a_join_cancelled_in_its_thread_ends_before_the_scratch_goes(open_engine, lake, tmp_path, monkeypatch):
    lake.put("s3://b/t/x.data")
    loop, started, ended = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    judge = duckdb_plan.Detection.judge

    def slow(self, *arguments):
        judge(self, *arguments)
        loop.call_soon_threadsafe(started.set)
        try:
            self._db.execute("SELECT count(*) FROM range(100000000000) a, range(1000) b")
        finally:
            assert self._judged.exists()
            ended.set()

    monkeypatch.setattr(duckdb_plan.Detection, "judge", slow)
    async with open_engine() as engine:
        task = asyncio.create_task(engine.find_orphans(lake.job(tmp_path / "plan")))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_a_scratch_directory_that_cannot_be_made_is_the_engines_failure(open_engine, lake, tmp_path):
    (tmp_path / "file").write_text("in the way")
    async with open_engine(scratch_dir=tmp_path / "file") as engine:
        with pytest.raises(EngineFailed):
            await engine.find_orphans(lake.job(tmp_path / "plan"))


async def test_a_join_without_memory_names_the_setting_in_one_sentence(open_engine, lake, tmp_path):
    for number in range(100):
        lake.put(f"s3://b/t/{number}.data")
    async with open_engine(memory_limit="1MB") as engine:
        with pytest.raises(EngineFailed, match=r"more memory than engine\.memory_limit = 1MB gives it$"):
            await engine.find_orphans(lake.job(tmp_path / "plan"))


async def test_any_name_of_the_scratch_directory_will_do(open_engine, lake, tmp_path):
    stray = lake.put("s3://b/t/x.data")
    async with open_engine(scratch_dir=tmp_path / "it's [odd]* ?") as engine:
        assert candidates(await engine.find_orphans(lake.job(tmp_path / "plan"))) == {stray}


async def test_tables_planned_side_by_side_do_not_meet(open_engine, lake, tmp_path):
    for number in range(3000):
        lake.put(f"s3://b/t/{number}.data")
    async with open_engine() as engine:
        plans = await asyncio.gather(*(engine.find_orphans(lake.job(tmp_path / f"plan{n}")) for n in range(3)))
    assert len({plan.digest for plan in plans}) == 1
    assert plans[0].candidates.files == 3000


async def test_many_suspects_are_looked_for_by_a_second_listing_not_one_by_one(open_engine, lake, tmp_path):
    lake.source([f"s3://b/t/{number}.data" for number in range(common.asked_singly(0) + 1)])
    calls = []
    bucket("b").faults = lambda call, address: calls.append(call)
    async with open_engine() as engine:
        plan = await engine.find_orphans(lake.job(tmp_path / "plan"))
    assert plan.missing_count == common.asked_singly(0) + 1
    assert calls == ["list", "list"]


# Scratch and spill.


async def test_only_scratch_directories_of_dead_processes_are_removed(tmp_path):
    async with scratch(tmp_path) as living:
        of_others = tmp_path / "plan-b"
        for dead in (tmp_path / f"plan-{'0' * 32}", of_others):
            dead.mkdir()
            (dead / "x").write_text("x")
            dead.with_suffix(".lock").touch()
        async with scratch(tmp_path) as another:
            assert {path for path in tmp_path.iterdir() if path.is_dir()} == {living, another, of_others}
        assert living.is_dir()
    assert sorted(tmp_path.iterdir()) == [of_others, of_others.with_suffix(".lock")]


SCHEMA = pa.schema([pa.field("n", pa.int64())])


class SlowWriter:
    """Holds the disk up until it is let go, and knows the largest chunk."""

    def __init__(self):
        self.go, self.chunks = threading.Event(), []

    def __call__(self, chunk):
        self.go.wait()
        self.chunks.append(chunk.num_rows)
        return chunk


async def test_a_spill_waits_for_the_disk_instead_of_piling_up(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "CHUNK_ROWS", 10)
    slow = SlowWriter()
    added = []
    with inprocess.ThreadPoolExecutor(2) as threads:
        async with Spill(tmp_path / "x.parquet", SCHEMA, threads, slow) as spilled:

            async def fill():
                for number in range(50):
                    await spilled.add(pa.record_batch({"n": pa.array([number] * 5)}, schema=SCHEMA))
                    added.append(number)

            filling = asyncio.create_task(fill())
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(added) < 5  # one chunk is being written, one waits for it
            slow.go.set()
            await filling
    rows = spill.pq.read_table(tmp_path / "x.parquet").column("n").to_pylist()
    assert rows == [number for number in range(50) for _ in range(5)]
    assert max(slow.chunks) == 10


async def test_batches_without_rows_make_an_empty_file(tmp_path):
    with inprocess.ThreadPoolExecutor(1) as threads:
        async with Spill(tmp_path / "x.parquet", SCHEMA, threads) as spilled:
            await spilled.add(pa.record_batch({"n": pa.array([], pa.int64())}, schema=SCHEMA))
    assert spill.pq.read_table(tmp_path / "x.parquet").num_rows == 0


async def test_a_failed_write_is_not_a_short_file(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "CHUNK_ROWS", 1)

    def full(_):
        raise OSError("no space left")

    async def fill():
        with inprocess.ThreadPoolExecutor(1) as threads:
            async with Spill(tmp_path / "x.parquet", SCHEMA, threads, full) as spilled:
                await spilled.add(pa.record_batch({"n": pa.array([1])}, schema=SCHEMA))

    with pytest.raises(OSError, match="no space left"):
        await fill()


# The registry.


async def test_the_registry_opens_an_engine_with_its_own_place(lake, tmp_path):
    lake.source([lake.put("s3://b/t/x.data", OLD)])
    engine = open_inprocess(
        storage=MemoryStorage(), decoder=decoder, data_dir=tmp_path, memory_limit="256MB", cache_key=b"k" * 32
    )
    async with contextlib.aclosing(engine):
        plan = await engine.find_orphans(lake.job(tmp_path / "plan"))
    assert plan.engine == "inprocess"
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "scratch", "plan"}


def test_every_statement_of_the_plan_has_its_limits_filled_in():
    assert {"held", "unreferenced", "suspects", "missing", "rows", "tallies"} <= set(statements())
    assert not [name for name, text in statements().items() if "_shown" in text]
