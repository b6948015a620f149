"""The files between Spark's executors and this process."""

import asyncio
import contextlib
import os
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from tests.builders.small_spark import SMALL_SPARK
from tests.builders.spark_ui import QUERIES, operators, plans_of, single_sorts, status
from tests.contract import engine_lake
from tests.contract.engine_lake import ListLake, Travelling, decoder

from lakesweep.cleanup import plan_file
from lakesweep.engines.spark import engine as spark_engine
from lakesweep.engines.spark import pipeline
from lakesweep.engines.spark import scratch as scratches
from lakesweep.engines.spark.engine import SparkEngine
from lakesweep.engines.spark.pipeline import Pipeline
from lakesweep.engines.spark.relations import LocalFiles
from lakesweep.engines.spark.scratch import DirectoryScratch, SparkScratch, StoreScratch
from lakesweep.engines.spark.scratch_objects import open_scratch
from lakesweep.engines.spark.session import SparkRuntime, shared_runtime
from lakesweep.model.errors import EngineFailed
from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.storage.local.settings import LocalOptions
from lakesweep.storage.memory import MemoryStorage, bucket
from lakesweep.storage.spec import Confine, StorageSpec

ENGINES = []
"""The one runtime of these tests, while it runs."""
STRAY = "s3://b/t/stray.data"

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module", autouse=True)
def mounted(tmp_path_factory):
    """One session for all tests, told to ignore damage, with a file system of Hadoop's that our code does not know.

    The process may already have Spark, started by tests of another module: then this is a session beside theirs."""
    cloudpickle.register_pickle_by_value(engine_lake)
    directory = tmp_path_factory.mktemp("hadoop")
    seen = [("spark.ui.enabled", "true"), ("spark.ui.port", "0")]
    lenient = [(f"spark.sql.files.{name}", "true") for name in ("ignoreCorruptFiles", "ignoreMissingFiles")]
    ENGINES.append(shared_runtime(replace(SMALL_SPARK, conf=(*SMALL_SPARK.conf, *lenient, *seen))))
    context = asyncio.run(ENGINES[0].session()).sparkContext
    context._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.lake.link./x", f"file://{directory}")
    yield directory
    asyncio.run(ENGINES.pop().aclose())
    cloudpickle.unregister_pickle_by_value(engine_lake)


def engine_in(scratch, runtime=None):
    return SparkEngine(
        runtime=runtime or shared_runtime(ENGINES[0].config),
        storage=MemoryStorage(),
        open_storage=Travelling(MemoryStorage()),
        decoder=decoder,
        cache=None,
        scratch=DirectoryScratch(parent=scratch) if isinstance(scratch, Path) else scratch,
    )


async def rows_from(engine, lake, work):
    async with contextlib.aclosing(engine):
        plan = await engine.find_orphans(lake.job(work / "plan.parquet"))
    return [row.path for batch in plan_file.read_batches(plan.rows_path) for row in batch]


def some_table():
    lake = ListLake()
    for number in range(20):
        lake.source([lake.put(f"s3://b/t/{number}.data")])
    lake.named = [lake.put("s3://b/t/named.data")]
    lake.put(STRAY)
    return lake


class OnAnotherDisk(LocalFiles):
    """What a directory is like that this process and the executors both have, each its own."""

    def _address(self, name):
        return f"file://{self.directory.parent}/of-the-executors/{name}"


async def test_rows_that_only_the_executors_see_stop_the_table(tmp_path, monkeypatch):
    lake = ListLake()
    lake.put("s3://b/t/x.data")
    monkeypatch.setattr(scratches, "LocalFiles", OnAnotherDisk)
    engine = engine_in(DirectoryScratch(parent=tmp_path / "scratch", shared=True))
    async with contextlib.aclosing(engine):
        with pytest.raises(EngineFailed, match=r"^set engine\.spark\.scratch .*wrote 2 rows to .* and 0 are there"):
            await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))
    assert not (tmp_path / "of-the-executors" / "listing").exists()


@pytest.mark.parametrize("released", [[], ["s3://b/t/released.data"]])
async def test_references_that_spark_does_not_read_back_stop_the_table(tmp_path, monkeypatch, released):
    lake, read = some_table(), LocalFiles.read
    lake.released = released

    def fewer(self, spark, name, schema, *, standing=None):
        rows = read(self, spark, name, schema, standing=standing)
        in_full = name == "read" and standing is False
        return rows.where("coalesce(address, '') NOT LIKE '%/named.data'") if in_full else rows

    monkeypatch.setattr(LocalFiles, "read", fewer)
    async with contextlib.aclosing(engine_in(tmp_path / "scratch")) as engine:
        with pytest.raises(EngineFailed, match="references"):
            await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))


class OnAFailingDisk(Pipeline):
    """The disk gives back something else than was written: nothing but zeros, or one bit of a fingerprint."""

    relation: str
    harm: str

    def take_references(self, spark):
        skipped = super().take_references(spark)
        for part in self.relations.part_files(self.relation):
            data = bytearray(part.stat().st_size)
            if self.harm == "flipped":
                prints = pq.read_metadata(part).row_group(0).column(pq.read_schema(part).get_field_index("print"))
                data = bytearray(part.read_bytes())
                data[prints.data_page_offset + prints.total_compressed_size - 1] ^= 1
            part.write_bytes(data)
        return skipped


@pytest.mark.parametrize(
    ("relation", "harm", "why"),
    [("read", "zeros", None), ("read", "flipped", "(?i)crc|checksum"), ("listing", "flipped", "(?i)crc|checksum")],
)
async def test_damaged_rows_fail_even_if_spark_ignores_corruption(tmp_path, monkeypatch, relation, harm, why):
    lake = ListLake()
    lake.source([lake.put("s3://b/t/x.data")])
    monkeypatch.setattr(spark_engine, "Pipeline", OnAFailingDisk)
    monkeypatch.setattr(OnAFailingDisk, "relation", relation, raising=False)
    monkeypatch.setattr(OnAFailingDisk, "harm", harm, raising=False)
    engine = engine_in(tmp_path / "scratch")
    async with contextlib.aclosing(engine):
        with pytest.raises(EngineFailed, match=why):
            await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))


class BlocksGoAstray(Pipeline):
    """Spark does not hand on all blocks of fingerprints, or some twice."""

    harm: str

    def _blocks(self, spark, buckets):
        blocks = super()._blocks(spark, buckets)
        return blocks.unionByName(blocks) if self.harm == "twice" else blocks.where(self.harm)


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        ("marks <> 1", "the listing"),
        ("bucket > 3 OR marks <> 1", "the listing"),
        ("marks & 8 = 0", "references"),
        ("bucket > 3 OR marks & 8 = 0", "references"),
        ("marks & 10 <> 2", "references in full"),
        ("twice", "the listing"),
        ("false", "the listing"),
        ("true", None),
    ],
)
async def test_fingerprints_that_are_not_compared_stop_the_table(tmp_path, monkeypatch, harm, what):
    lake = some_table()
    monkeypatch.setattr(spark_engine, "Pipeline", BlocksGoAstray)
    monkeypatch.setattr(BlocksGoAstray, "harm", harm, raising=False)
    engine = engine_in(tmp_path / "scratch")
    if what is None:
        assert await rows_from(engine, lake, tmp_path) == [STRAY]
        return
    with pytest.raises(EngineFailed, match=rf"rows of {what} were written to .* but Spark finds \d+ there"):
        await rows_from(engine, lake, tmp_path)


async def test_with_much_garbage_spark_joins_the_listing(tmp_path, monkeypatch):
    lake = some_table()
    strays = sorted(lake.put(f"s3://b/t/stray{number}.data") for number in range(20))
    monkeypatch.setattr(pipeline, "_WORKER_ROWS", 20)
    monkeypatch.setattr(pipeline, "_BROADCAST_ROWS", 0)
    assert await rows_from(engine_in(tmp_path / "scratch"), lake, tmp_path) == [STRAY, *strays]


class AmongRewriters(Pipeline):
    """Somebody modifies a manifest in place after it was read once."""

    source: Location

    def incomplete(self, spark):
        found = super().incomplete(spark)
        objects = bucket("metadata").objects
        objects[self.source.path] = replace(objects[self.source.path], data=b'["s3://b/t/another.data"]')
        return found


async def test_a_source_that_says_something_else_the_second_time_fails(tmp_path, monkeypatch):
    lake = ListLake()
    source = lake.source(["s3://b/t/missing.data"])
    monkeypatch.setattr(spark_engine, "Pipeline", AmongRewriters)
    monkeypatch.setattr(AmongRewriters, "source", source.location, raising=False)
    engine = engine_in(tmp_path / "scratch")
    async with contextlib.aclosing(engine):
        with pytest.raises(EngineFailed, match="modified in place"):
            await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))


class InASharedPlace(Pipeline):
    """Somebody else clears it up while it is in use: a neighbour to whom our lock means nothing."""

    gone: tuple[Path, str]

    def _read(self, spark, name, schema):
        parent, pattern = self.gone
        for path in sorted(parent.glob(f"plan-*/{pattern}"))[:1]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return super()._read(spark, name, schema)


def objects_in(directory):
    """A store of ours that tests and executors both have: local files, through the same code as S3's."""
    directory.mkdir(exist_ok=True)
    place = Location.parse(str(directory))
    spec = StorageSpec(confine=Confine(places=(place,)))

    async def discard(paths):
        for path in paths:
            Path(Location.parse(path).path).unlink()

    return StoreScratch(place=place, open_store=partial(open_scratch, spec), discard=discard)


@pytest.mark.parametrize("kept_in", ["directory", "store"])
async def test_rows_that_go_before_they_are_used_stop_the_table(tmp_path, monkeypatch, kept_in):
    lake, scratch = some_table(), tmp_path / "scratch"
    monkeypatch.setattr(spark_engine, "Pipeline", InASharedPlace)
    for gone in ("read/*", "sides/*", "listing/*", "judged/*"):
        monkeypatch.setattr(InASharedPlace, "gone", (scratch, gone), raising=False)
        engine = engine_in(scratch if kept_in == "directory" else objects_in(scratch))
        async with contextlib.aclosing(engine):
            with pytest.raises(EngineFailed, match=r"Spark finds \d+ there|was deleted while the plan|does not exist"):
                await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))


async def test_the_scratch_directory_may_have_any_name(tmp_path):
    lake = some_table()
    assert await rows_from(engine_in(tmp_path / "a [b] {c,d} e*f?"), lake, tmp_path) == [STRAY]


async def test_any_file_system_of_spark_serves_as_scratch(tmp_path, mounted):
    """Hadoop's ViewFS, which our own code does not know. What a crashed plan left a day ago goes."""
    for name in (f"plan-{'0' * 32}", "of-others"):
        (mounted / "plans" / name).mkdir(parents=True)
        os.utime(mounted / "plans" / name, (0, 0))
    engine = engine_in(SparkScratch(address="viewfs://lake/x/plans"))
    assert await rows_from(engine, some_table(), tmp_path) == [STRAY]
    assert [path.name for path in (mounted / "plans").iterdir()] == ["of-others"]


async def test_a_store_of_ours_is_scratch_and_crashed_plans_go_after_a_day(tmp_path):
    lake, scratch = some_table(), tmp_path / "scratch"
    left = {name: scratch / name / "read" / "x.arrow" for name in (f"plan-{'0' * 32}", f"plan-{'1' * 32}", "others")}
    for file in left.values():
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x")
    long_ago = time.time() - 25 * 3600
    for name in (f"plan-{'0' * 32}", "others"):
        os.utime(left[name], (long_ago, long_ago))
    spec = StorageSpec(stores=(LocalOptions(age_by=AgeBy.MODIFICATION),))
    place = replace(objects_in(scratch), open_store=partial(open_scratch, spec))
    assert await rows_from(engine_in(place), lake, tmp_path) == [STRAY]
    kept = [file for name, file in left.items() if name != f"plan-{'0' * 32}"]
    assert sorted(path for path in scratch.rglob("*") if path.is_file()) == sorted(kept)


async def test_a_sort_in_one_partition_is_found_in_what_the_spark_ui_says():
    """The control for the next test: it would be worth nothing if it could not find one."""
    session = (await ENGINES[0].session()).newSession()
    session.sparkContext.setJobGroup("in-one", "a sort in one partition")
    try:
        rows = session.range(0, 1000, 1, 4)
        rows.repartition(1).sortWithinPartitions("id").where("id >= 0").collect()
        session.sql("SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM range(0, 1000, 1, 4)").collect()
        rows.sort("id").collect()  # in many partitions
    finally:
        session.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        session.sparkContext.setLocalProperty("spark.job.description", None)
    jobs = [one for one in status(session, "jobs") if one.get("jobGroup") == "in-one"]
    found = [len(single_sorts(plan)) for plan in plans_of(status(session, QUERIES), jobs)]
    assert sorted(found) == [0, 1, 1], plans_of(status(session, QUERIES), jobs)


async def test_the_spark_ui_names_table_and_phase_and_shows_sound_plans(tmp_path):
    told = []
    engine = engine_in(tmp_path / "scratch")
    async with contextlib.aclosing(engine):
        lake = some_table()
        lake.source(["s3://b/t/missing.data"])  # so that there is something to look for again
        job = replace(lake.job(tmp_path / "named-run.parquet"), report_step=told.append)
        plan = await engine.find_orphans(job)
        session = await ENGINES[0].session()
        jobs = [one for one in status(session, "jobs") if one.get("jobGroup") == "lakesweep-named-run"]
        stages = {one["stageId"]: one for one in status(session, "stages?length=10000")}
        plans = plans_of(status(session, QUERIES), jobs)
    assert [row.path for batch in plan_file.read_batches(plan.rows_path) for row in batch] == [STRAY]
    phases = {one["description"].removeprefix("acme/prod/t: ").partition(" (run")[0] for one in jobs}
    assert {"list", "read", "judge", "look again", "count", "write"} <= phases
    assert phases <= set(told)
    for one in jobs:
        ran = [stage for number in one["stageIds"] if (stage := stages.get(number)) and stage["status"] != "SKIPPED"]
        assert ran
        assert {stage["description"] for stage in ran} == {one["description"]}
    assert plans
    for description in plans:
        assert operators(description), description
        assert "CartesianProduct" not in description
        assert "BroadcastNestedLoopJoin" not in description
        assert single_sorts(description) == [], description


async def test_a_cold_session_is_reported(tmp_path):
    cold = SparkRuntime(replace(SMALL_SPARK, master="spark://127.0.0.1:1"))
    told = []
    with pytest.raises(EngineFailed):  # it cannot start: this process has another
        await engine_in(tmp_path, cold).find_orphans(replace(some_table().job(tmp_path / "x"), report_step=told.append))
    assert told == ["start Spark at spark://127.0.0.1:1"]
