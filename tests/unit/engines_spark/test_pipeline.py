"""The files between Spark's executors and this process."""

import contextlib
import shutil
from dataclasses import replace

import pytest
from pyspark import cloudpickle
from tests.builders.small_spark import SMALL_SPARK
from tests.contract import engine_lake
from tests.contract.engine_lake import ListLake, Travelling, decoder

from lakesweep.cleanup import plan_file
from lakesweep.engines.listing import RootShard
from lakesweep.engines.spark import engine as spark_engine
from lakesweep.engines.spark import executor
from lakesweep.engines.spark.engine import SparkEngine
from lakesweep.engines.spark.pipeline import Pipeline
from lakesweep.engines.spark.session import JobLabel, shared_runtime
from lakesweep.model.errors import EngineFailed
from lakesweep.model.location import Location
from lakesweep.ports.table import MatchBy
from lakesweep.storage.memory import MemoryStorage

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(autouse=True)
def _tests_travel():
    cloudpickle.register_pickle_by_value(engine_lake)
    yield
    cloudpickle.unregister_pickle_by_value(engine_lake)


def engine_in(scratch, spark=SMALL_SPARK):
    return SparkEngine(
        runtime=shared_runtime(spark),
        storage=MemoryStorage(),
        open_storage=Travelling(MemoryStorage()),
        decoder=decoder,
        cache=None,
        scratch_dir=scratch,
    )


class OnAnotherDisk(Pipeline):
    """What a directory is like that this process and the executors both have, each its own."""

    def _address(self, name):
        return f"file://{self._directory.parent}/of-the-executors/{name}"


async def test_rows_that_only_the_executors_see_stop_the_table(tmp_path):
    lake = ListLake()
    lake.put("s3://b/t/x.data")
    shards = (RootShard(root=Location.parse("s3://b/t")),)
    work = executor.listing(Travelling(MemoryStorage()), shards, MatchBy.ADDRESS, keys_only=False)
    pipeline = OnAnotherDisk(tmp_path / "scratch")
    async with contextlib.aclosing(shared_runtime(SMALL_SPARK)) as runtime:
        session = await runtime.session()
        label = JobLabel(group="test", description="test")
        with pytest.raises(EngineFailed, match=r"wrote 1 rows to .* and 0 are there: set spark\.lakesweep\.scratch"):
            await runtime.run(session, label, lambda spark: pipeline.write_listing(spark, work, 1))


class OnAFailingDisk(Pipeline):
    """The disk gives back something else than was written."""

    def take_references(self, spark):
        skipped = super().take_references(spark)
        for part in self._part_files("read"):
            part.write_bytes(bytes(part.stat().st_size))
            part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
        return skipped


async def test_damaged_references_fail_even_if_spark_ignores_corruption(tmp_path, monkeypatch):
    lake = ListLake()
    lake.source([lake.put("s3://b/t/x.data")])
    lenient = [(f"spark.sql.files.{name}", "true") for name in ("ignoreCorruptFiles", "ignoreMissingFiles")]
    monkeypatch.setattr(spark_engine, "Pipeline", OnAFailingDisk)
    engine = engine_in(tmp_path / "scratch", replace(SMALL_SPARK, conf=(*SMALL_SPARK.conf, *lenient)))
    async with contextlib.aclosing(engine):
        with pytest.raises(EngineFailed):
            await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))


class InASharedDirectory(Pipeline):
    """Somebody else clears it up while it is in use: a neighbour to whom our lock means nothing."""

    gone: str

    def take_references(self, spark):
        self._clear_up()
        return super().take_references(spark)

    def _rows_on_disk(self, name):
        rows = super()._rows_on_disk(name)
        if name == "prints":
            self._clear_up()
        return rows

    def _clear_up(self):
        for path in self._directory.glob(self.gone):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


async def test_references_that_go_before_they_are_used_stop_the_table(tmp_path, monkeypatch):
    lake = ListLake()
    for number in range(20):
        lake.source([lake.put(f"s3://b/t/{number}.data")])
    lake.named = [lake.put("s3://b/t/named.data")]
    monkeypatch.setattr(spark_engine, "Pipeline", InASharedDirectory)
    async with contextlib.aclosing(shared_runtime(SMALL_SPARK)):  # one session for all of it
        for gone in ("named", "read", "read/part-00000*", "prints/part-00000*"):
            monkeypatch.setattr(InASharedDirectory, "gone", gone, raising=False)
            engine = engine_in(tmp_path / "scratch")
            async with contextlib.aclosing(engine):
                with pytest.raises(EngineFailed):
                    await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))


async def test_the_scratch_directory_may_have_any_name(tmp_path):
    lake = ListLake()
    lake.source([lake.put("s3://b/t/x.data")])
    stray = lake.put("s3://b/t/y.data")
    engine = engine_in(tmp_path / "a [b] {c,d} e*f?")
    async with contextlib.aclosing(engine):
        plan = await engine.find_orphans(lake.job(tmp_path / "plan.parquet"))
    assert [row.path for batch in plan_file.read_batches(plan.rows_path) for row in batch] == [stray]
    assert plan.matched == 1
