"""What the Spark engine promises besides the laws of every engine: small tables are cheap, none waits for another, and
what the cache knows is not read again."""

import asyncio
import contextlib
import copy
import gc
import json
import os
import sys
import zipimport
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.builders.small_spark import SMALL_SPARK
from tests.contract import engine_lake
from tests.contract.engine_lake import ListLake, Travelling, decoder

from lakesweep.cleanup import plan_file
from lakesweep.engines.inprocess import InProcessEngine
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.spark import judge_here, worker_daemon, worker_setup
from lakesweep.engines.spark.engine import SparkEngine
from lakesweep.engines.spark.join_here import JoinHere
from lakesweep.engines.spark.scratch import DirectoryScratch, SparkScratch, StoreScratch
from lakesweep.engines.spark.scratch_objects import open_scratch
from lakesweep.engines.spark.session import shared_runtime
from lakesweep.model.errors import EngineFailed
from lakesweep.model.location import Location
from lakesweep.ports.table import Shortlist
from lakesweep.storage.memory import MemoryStorage, bucket
from lakesweep.storage.spec import Confine, StorageSpec

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

STRAY = "s3://b/t/stray.data"
KEPT = []
"""The one runtime of these tests, while it runs."""


@pytest.fixture(scope="module", autouse=True)
def spark_kept():
    cloudpickle.register_pickle_by_value(engine_lake)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    KEPT.append(shared_runtime(SMALL_SPARK))
    yield
    asyncio.run(KEPT.pop().aclose())
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    cloudpickle.unregister_pickle_by_value(engine_lake)


@pytest.fixture
def lake():
    made = ListLake()
    for number in range(5):
        made.source([made.put(f"s3://b/t/{number}.data"), made.put(f"s3://b/t/{number}-{number}.data")])
    made.named = [made.put("s3://b/t/named.data")]
    made.put(STRAY)
    return made


def scratch_in(kind, directory):
    if kind == "directory":
        return DirectoryScratch(parent=directory)
    if kind == "spark's":
        return SparkScratch(address=f"file://{directory}")
    directory.mkdir(exist_ok=True)
    place = Location.parse(str(directory))

    async def discard(paths):
        for path in paths:
            Path(Location.parse(path).path).unlink()

    spec = StorageSpec(confine=Confine(places=(place,)))
    return StoreScratch(place=place, open_store=partial(open_scratch, spec), discard=discard)


def spark_engine(work, *, cache=None, storage=None, small=True, scratch="directory"):
    storage = storage or MemoryStorage()
    return SparkEngine(
        runtime=shared_runtime(SMALL_SPARK),
        storage=storage,
        open_storage=Travelling(storage),
        decoder=decoder,
        cache=cache,
        scratch=scratch_in(scratch, work / "scratch"),
        small=JoinHere(directory=work / "here", rows=10**6) if small else None,
    )


def inprocess_engine(work, cache):
    return InProcessEngine(
        storage=MemoryStorage(), decoder=decoder, cache=cache, scratch_dir=work / "scratch", memory_limit="256MB"
    )


async def planned(engine, lake, work, name="plan"):
    async with contextlib.aclosing(engine):
        plan = await engine.find_orphans(lake.job(work / f"{name}.parquet"))
    return replace(plan, engine="", timings={})


def paths_of(plan):
    return [row.path for batch in plan_file.read_batches(plan.rows_path) for row in batch]


@pytest.fixture
def cache(tmp_path):
    return FingerprintCache(tmp_path / "cache", limit_bytes=10**8, key=b"k" * 32)


# Small tables.


async def jobs_of(name):
    """The jobs and the tasks that a run had."""
    tracker = (await KEPT[0].session()).sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(f"lakesweep-{name}")
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in tracker.getJobInfo(job).stageIds]
    return len(jobs), sum(stage.numTasks for stage in stages if stage)


async def test_a_small_table_takes_two_jobs_and_the_same_plan_as_a_large_one(lake, tmp_path):
    small = await planned(spark_engine(tmp_path), lake, tmp_path, "small")
    large = await planned(spark_engine(tmp_path, small=False), lake, tmp_path, "large")
    assert paths_of(small) == paths_of(large) == [STRAY]
    assert replace(small, rows_path="") == replace(large, rows_path="")
    assert await jobs_of("small") == (2, 8)  # six tasks list; one reads sources, one hands on what metadata names
    assert (await jobs_of("large"))[0] > 6


async def test_a_table_above_all_limits_is_joined_and_judged_on_spark(lake, tmp_path):
    engine = spark_engine(tmp_path)
    engine._small = JoinHere(directory=tmp_path / "here", rows=10, left=0)
    assert paths_of(await planned(engine, lake, tmp_path, "above")) == [STRAY]
    assert (await jobs_of("above"))[0] > 6


# What a comparison on Spark leaves.


def judging_here(work, *, left=1000, **options):
    engine = spark_engine(work, **options)
    engine._small = JoinHere(directory=work / "here", rows=0, left=left)
    return engine


async def test_few_unreferenced_files_are_judged_here_with_the_same_plan(lake, tmp_path, cache):
    """Files that expire, one outside the roots and one that is young are among them."""
    lake.expired = [lake.put("s3://b/t/old.data"), "s3://b/t/gone.data"]
    lake.named.append("s3://elsewhere/x.data")
    lake.put("s3://b/t/young.data", engine_lake.YOUNG)
    large = await planned(spark_engine(tmp_path, small=False), lake, tmp_path, "large")
    for name in ("here", "known"):
        here = await planned(judging_here(tmp_path, cache=cache), lake, tmp_path, name)
        assert paths_of(here) == paths_of(large) == ["s3://b/t/old.data", STRAY]
        assert replace(here, rows_path="") == replace(large, rows_path="")
    assert large.unverified == 1
    assert (await jobs_of("here"))[0] == 5  # list, read, two to compare, and find the rows that are left


async def test_a_table_without_garbage_is_judged_here(lake, tmp_path):
    del bucket("b").objects["t/stray.data"]
    plan = await planned(judging_here(tmp_path), lake, tmp_path, "clean")
    assert (paths_of(plan), plan.references, plan.candidates.files) == ([], 11, 0)
    assert (await jobs_of("clean"))[0] == 4


@pytest.mark.parametrize(("left", "lost"), [(0, False), (1000, True)])
async def test_more_than_a_few_or_a_lost_file_are_left_to_spark(lake, tmp_path, monkeypatch, left, lost):
    monkeypatch.setattr(judge_here.JudgedHere, "judge", None)
    if lost:
        del bucket("b").objects["t/3.data"]
    plan = await planned(judging_here(tmp_path, left=left), lake, tmp_path)
    assert (paths_of(plan), plan.missing_count) == ([STRAY], int(lost))


@pytest.mark.parametrize("relation", ["read", "listing", "sides", "unkept"])
async def test_rows_that_go_before_they_are_judged_here_stop_the_table(lake, tmp_path, monkeypatch, relation):
    copy_here = judge_here.JudgedHere._copy
    take = judge_here.JudgedHere._take_unkept

    def lose(steps):
        for part in steps.relations.part_files(relation):
            if "-prints" not in part.name:
                part.unlink()

    def take_unkept(steps, spark):
        lose(steps)
        take(steps, spark)

    def copied(steps, *given):
        lose(steps)
        copy_here(steps, *given)

    if relation == "unkept":
        monkeypatch.setattr(judge_here.JudgedHere, "_copy", copied)
    else:
        monkeypatch.setattr(judge_here.JudgedHere, "_take_unkept", take_unkept)
    with pytest.raises(EngineFailed):
        await planned(judging_here(tmp_path), lake, tmp_path)


def look_around(batches):
    """What a worker would prepare again for its next task."""
    for batch in batches:
        worker_setup.lighten()
        archives = os.environ["PYTHONPATH"].split(os.pathsep)
        again = [
            path
            for path, finder in sys.path_importer_cache.items()
            if type(finder) is zipimport.zipimporter and finder.archive in archives
        ]
        yield pa.record_batch({"finders": pa.array([len(again)] * batch.num_rows), "aside": [gc.get_freeze_count()]})


async def test_workers_do_not_prepare_again_what_has_not_changed():
    session = await KEPT[0].session()
    for _ in range(3):
        (row,) = session.range(0, 1, 1, 1).mapInArrow(look_around, "finders BIGINT, aside BIGINT").collect()
    assert row.finders == 0
    assert row.aside > 10_000
    if not KEPT[0]._backend._borrowed:
        assert session.conf.get("spark.python.daemon.module") == worker_daemon.MODULE
    before = gc.get_freeze_count()
    worker_setup.lighten()
    assert gc.get_freeze_count() == before  # this process is not a worker


# Side by side.


class Gated(MemoryStorage):
    """Its first root is listed when `done` appears, all others as long as `open` is there."""

    def __init__(self, gates):
        super().__init__()
        self._gates = gates

    async def list(self, root):
        (self._gates / "reached").touch()
        wanted = ("done",) if root.path.endswith("/0") else ("open", "done")
        while not any((self._gates / gate).exists() for gate in wanted):
            await asyncio.sleep(0.02)
        async with contextlib.aclosing(super().list(root)) as pages:
            async for page in pages:
                yield page


async def test_a_small_table_does_not_wait_for_the_tasks_of_a_large_one(lake, tmp_path):
    """One task of the large table holds a core until the small one is planned. The other core goes to the small one
    whenever that has something to do, although the large one still has tasks waiting, which would take no time."""
    context = (await KEPT[0].session()).sparkContext
    if context.getConf().get("spark.scheduler.mode") != "FAIR":
        pytest.skip("this process runs somebody else's Spark")
    tracker = context.statusTracker()
    gates = tmp_path / "gates"
    gates.mkdir()
    roots = tuple(Location.parse(f"s3://b/u/{number}") for number in range(40))
    large = copy.copy(lake)
    large.shortlist = Shortlist(roots=roots, objects=())
    async with contextlib.AsyncExitStack() as stack:
        slow = await stack.enter_async_context(contextlib.aclosing(spark_engine(tmp_path, storage=Gated(gates))))
        waiting = asyncio.create_task(slow.find_orphans(large.job(tmp_path / "gated.parquet")))
        try:
            while not (gates / "reached").exists():
                await asyncio.sleep(0.02)
            small = asyncio.create_task(planned(spark_engine(tmp_path), lake, tmp_path, "beside"))
            while not small.done():
                busy = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup("lakesweep-beside"))
                (gates / "open").touch() if busy else (gates / "open").unlink(missing_ok=True)
                await asyncio.sleep(0.01)
            (job,) = tracker.getJobIdsForGroup("lakesweep-gated")
            (stage,) = (tracker.getStageInfo(number) for number in tracker.getJobInfo(job).stageIds)
            assert paths_of(await small) == [STRAY]
            assert tracker.getJobInfo(job).status == "RUNNING"
            assert stage.numTasks == 40
            assert stage.numCompletedTasks + stage.numActiveTasks < stage.numTasks
        finally:
            (gates / "done").touch()
            await waiting


# The cache.


def lose_sources(lake):
    for source in lake.sources:
        bucket("metadata").objects.pop(source.location.path, None)


@pytest.mark.parametrize("small", [True, False], ids=["joined here", "joined on spark"])
@pytest.mark.parametrize("scratch", ["directory", "store", "spark's"])
async def test_what_the_cache_knows_is_not_read_again(lake, tmp_path, cache, scratch, small):
    """Sources that are gone cannot be read."""
    one = await planned(inprocess_engine(tmp_path, cache), lake, tmp_path, "one")
    lose_sources(lake)
    engine = spark_engine(tmp_path, cache=cache, small=small, scratch=scratch)
    other = await planned(engine, lake, tmp_path, "other")
    assert replace(one, rows_path="") == replace(other, rows_path="")
    assert one.references == 11


@pytest.mark.parametrize("scratch", ["directory", "store"])
async def test_what_executors_read_is_in_the_cache_of_both_engines(lake, tmp_path, cache, scratch):
    one = await planned(spark_engine(tmp_path, cache=cache, scratch=scratch), lake, tmp_path, "one")
    added = lake.source([lake.put("s3://b/t/added.data")])
    data = bucket("metadata").objects[added.location.path]
    lose_sources(lake)
    bucket("metadata").objects[added.location.path] = data
    two = await planned(spark_engine(tmp_path, cache=cache, scratch=scratch, small=False), lake, tmp_path, "two")
    lose_sources(lake)
    three = await planned(inprocess_engine(tmp_path, cache), lake, tmp_path, "three")
    assert paths_of(one) == paths_of(two) == paths_of(three) == [STRAY]
    assert (one.references, two.references, three.references) == (11, 12, 12)


@pytest.mark.parametrize("small", [True, False], ids=["joined here", "joined on spark"])
async def test_a_cached_source_that_was_modified_in_place_is_dropped(lake, tmp_path, cache, small):
    await planned(spark_engine(tmp_path, cache=cache), lake, tmp_path, "before")
    del bucket("b").objects["t/0.data"]
    objects, place = bucket("metadata").objects, lake.sources[0].location.path
    objects[place] = replace(objects[place], data=json.dumps(["s3://b/t/0-0.data", "s3://b/t/1.data"]).encode())
    with pytest.raises(EngineFailed, match="modified in place"):
        await planned(spark_engine(tmp_path, cache=cache, small=small), lake, tmp_path, "after")
    plan = await planned(spark_engine(tmp_path, cache=cache, small=small), lake, tmp_path, "again")
    assert (paths_of(plan), plan.missing_count, plan.references) == ([STRAY], 0, 10)


async def test_a_missing_file_of_a_cached_source_is_named(lake, tmp_path, cache):
    for small in (True, False):
        await planned(spark_engine(tmp_path, cache=cache), lake, tmp_path, "before")
        bucket("b").objects.pop("t/3.data", None)
        plan = await planned(spark_engine(tmp_path, cache=cache, small=small), lake, tmp_path, "after")
        assert plan.missing == ("s3://b/t/3.data",)
