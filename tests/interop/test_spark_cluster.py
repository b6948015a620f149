"""Whole cycles on a real standalone cluster and on a Spark Connect server, with the lake on S3 over HTTP.

The product runs as a process of its own, so that it can be watched while its cluster dies and comes back.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.peers.spark_cluster import cluster, connect_server
from tests.peers.spark_service import service
from tests.servers import seaweedfs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TARGET = "acme/prod/events"
STRAY = "part-00000-00000000-0000-0000-0000-000000000000-c000.snappy.parquet"


class S3Lake:
    """One Delta table in a bucket, with a file beside it that nothing names."""

    def __init__(self, server, work, bucket):
        self._server, self._bucket = server, bucket
        for number in range(3):
            rows = pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
            write_deltalake(work / "events", rows, mode="append")
        server.create_bucket(bucket)
        for path in sorted((work / "events").rglob("*")):
            if path.is_file():
                self._put(f"acme/events/{path.relative_to(work / 'events')}", path.read_bytes())
        self.litter()

    def litter(self):
        self._put(f"acme/events/{STRAY}", b"stray")
        old = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
        self._server.set_mtime(self._bucket, f"acme/events/{STRAY}", old)

    def keys(self):
        found = self._server.client().list_objects_v2(Bucket=self._bucket, Prefix="acme/events/")
        return {one["Key"].removeprefix("acme/events/") for one in found["Contents"]}

    def settings(self, work, engine):
        """A file as an operator writes it."""
        lines = [
            f'service.data_dir = "{work}/state"',
            f'storage.s3 = {{ endpoint_url = "{self._server.endpoint_url}", region = "us-east-1", path_style = true }}',
            *engine,
            "[[tenants]]",
            'id = "acme"',
            f'root = "s3://{self._bucket}/acme/"',
            "[[tenants.datasets]]",
            'id = "prod"',
            'format = "delta"',
            f'location = "s3://{self._bucket}/acme/"',
        ]
        path = work / "lakesweep.toml"
        path.write_text("\n".join(lines))
        return path

    def _put(self, key, data):
        self._server.client().put_object(Bucket=self._bucket, Key=key, Body=data)


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with seaweedfs.seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def lake(s3, tmp_path, monkeypatch):
    for name, value in seaweedfs.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return S3Lake(s3, tmp_path, f"lake{time.monotonic_ns()}")


def on_cluster(url):
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.sql.shuffle.partitions": "2",
        "spark.lakesweep.executorWaitSeconds": "10",
    }
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items()]
    return ['engine.kind = "spark"', f'engine.spark.master = "{url}"', *(f"engine.spark.conf.{line}" for line in lines)]


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def test_a_cluster_does_whole_cycles_survives_an_executor_and_comes_back_from_the_dead(lake, tmp_path):
    before = lake.keys()
    with cluster(tmp_path / "cluster", environment=seaweedfs.ENVIRONMENT) as spark:
        config = lake.settings(tmp_path, on_cluster(spark.url))
        with service(config, tmp_path / "service.log") as product:
            # An executor dies in the middle of a job: another one does its work.
            product.begin(TARGET)
            wait_for(spark.executors)
            spark.executors()[0].kill()
            planned = product.result()
            assert (planned["outcome"], planned["orphans"], planned["engine"]) == ("dry_run", 1, "spark"), planned

            # The whole cluster dies: the table fails with a reason, and nothing is deleted.
            spark.kill()
            failed = product.cycle(TARGET, execute=True)
            assert failed["outcome"] == "failed"
            assert "Spark" in failed["reason"]
            assert failed["deleted"] == 0
            assert lake.keys() == before

            # It comes back, and so does the product, by itself.
            spark.start()
            done = product.cycle(TARGET, execute=True)
            assert (done["outcome"], done["deleted"], done["digest"]) == ("done", 1, planned["digest"]), done
            assert lake.keys() == before - {STRAY}


def test_a_connect_server_does_whole_cycles_and_comes_back_from_the_dead(lake, tmp_path):
    before = lake.keys()
    environment = seaweedfs.ENVIRONMENT
    with connect_server(tmp_path / "first", environment=environment) as (url, server):
        config = lake.settings(tmp_path, ['engine.kind = "spark"', f'engine.spark.remote = "{url}"'])
        with service(config, tmp_path / "service.log") as product:
            planned = product.cycle(TARGET)
            assert (planned["outcome"], planned["orphans"], planned["engine"]) == ("dry_run", 1, "spark"), planned

            server.kill()
            failed = product.cycle(TARGET, execute=True)
            assert failed["outcome"] == "failed"
            assert "Spark Connect server" in failed["reason"]
            assert lake.keys() == before

            port = int(url.rpartition(":")[2])
            with connect_server(tmp_path / "second", port=port, environment=environment):
                done = product.cycle(TARGET, execute=True)
                assert (done["outcome"], done["deleted"], done["digest"]) == ("done", 1, planned["digest"]), done
                assert lake.keys() == before - {STRAY}
