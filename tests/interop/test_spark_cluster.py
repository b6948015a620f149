"""Whole cycles on a real standalone cluster and on a Spark Connect server, with the lake on S3 over HTTP.

The product runs as a process of its own, so that it can be watched while its executors, its cluster or its server
die in the middle of a job and come back.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.builders.daemons import daemon
from tests.builders.small_lake import hours
from tests.peers.spark_cluster import HOME, QUICK_JAVA, can_hide, cluster, connect_server
from tests.peers.spark_service import service
from tests.servers import seaweedfs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = "acme/prod/events"
STRAY = "part-00000-00000000-0000-0000-0000-000000000000-c000.snappy.parquet"


class S3Lake:
    """Delta tables in a bucket, each with a file beside it that nothing names."""

    def __init__(self, server, work, bucket):
        self._server, self._bucket, self._work = server, bucket, work
        self.bucket, self.endpoint_url = bucket, server.endpoint_url
        server.create_bucket(bucket)
        server.create_bucket(f"{bucket}-scratch")
        self.add("events")

    def add(self, name, *, appends=3):
        """One more table."""
        for number in range(appends):
            rows = pa.table({"id": pa.array(range(number * 10, number * 10 + 10), pa.int64())})
            write_deltalake(self._work / name, rows, mode="append")
        for path in sorted((self._work / name).rglob("*")):
            if path.is_file():
                self.put(f"acme/{name}/{path.relative_to(self._work / name)}", path.read_bytes())
        self.litter(name)

    def say_size(self, name, files):
        """What Spark writes beside a commit: by this number `auto` chooses the engine."""
        (newest,) = sorted((self._work / name / "_delta_log").glob("*.json"))[-1:]
        self.put(f"acme/{name}/_delta_log/{newest.stem}.crc", json.dumps({"numFiles": files}).encode())

    def litter(self, name="events"):
        """A file that nothing names, and long ago."""
        self.put(f"acme/{name}/{STRAY}", b"stray")
        old = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
        self._server.set_mtime(self._bucket, f"acme/{name}/{STRAY}", old)

    def keys(self, name="events"):
        found = self._server.client().list_objects_v2(Bucket=self._bucket, Prefix=f"acme/{name}/")
        return {one["Key"].removeprefix(f"acme/{name}/") for one in found["Contents"]}

    @property
    def scratch(self):
        """Where executors may write."""
        return f"s3://{self._bucket}-scratch/plans"

    def in_scratch(self, phase=""):
        """Objects of plans under way."""
        found = self._server.client().list_objects_v2(Bucket=f"{self._bucket}-scratch").get("Contents", ())
        return [one["Key"] for one in found if f"/{phase}" in one["Key"]]

    def clear_scratch(self, phase):
        """What somebody else's lifecycle rule does who means well."""
        for key in self.in_scratch(phase):
            self._server.client().delete_object(Bucket=f"{self._bucket}-scratch", Key=key)

    def settings(self, work, lines):
        """A file as an operator writes it."""
        lines = [
            f'service.data_dir = "{work}/state"',
            f'storage.s3 = {{ endpoint_url = "{self._server.endpoint_url}", region = "us-east-1", path_style = true }}',
            *lines,
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

    def put(self, key, data):
        """One object."""
        self._server.client().put_object(Bucket=self._bucket, Key=key, Body=data)


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with seaweedfs.seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Its workers see nothing of what the service has on disk: S3 is all that they have in common."""
    work, hidden = tmp_path_factory.mktemp("cluster"), tmp_path_factory.getbasetemp() if can_hide() else None
    with cluster(work, environment=seaweedfs.ENVIRONMENT, hidden=hidden) as running:
        yield running


@pytest.fixture
def lake(s3, tmp_path, monkeypatch):
    for name, value in seaweedfs.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return S3Lake(s3, tmp_path, f"lake{time.monotonic_ns()}")


def on_cluster(url, kind="spark", scratch=None):
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.shuffle.readHostLocalDisk": "false",  # one machine, but no common disk
        "spark.lakesweep.executorWaitSeconds": "10",
        "spark.lakesweep.smallTableRows": "0",  # every step on the cluster
    }
    lines = [f"engine.spark.conf.{json.dumps(name)} = {json.dumps(value)}" for name, value in conf.items()]
    lines += [f'engine.spark.scratch = "{scratch}"'] if scratch else []
    return [f'engine.kind = "{kind}"', f'engine.spark.master = "{url}"', *lines]


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


PHASES = ("started", "listing/", "read/", "judged/")
"""What there is in scratch when the executors list, read sources, join and judge, and look again."""


def test_a_cluster_without_a_shared_disk_does_cycles_despite_losses(spark, lake, tmp_path):
    before = lake.keys()
    log = tmp_path / "service.log"
    with service(lake.settings(tmp_path, on_cluster(spark.url, scratch=lake.scratch)), log) as product:
        planned = product.cycle(TARGET)
        assert (planned["outcome"], planned["orphans"], planned["engine"]) == ("dry_run", 1, "spark"), planned

        for phase in PHASES:
            product.begin(TARGET)
            wait_for(lambda phase=phase: lake.in_scratch(phase) and spark.executors())
            spark.executors()[0].kill()
            again = product.result()
            assert (again["outcome"], again["digest"]) == ("dry_run", planned["digest"]), (phase, again)
        assert "Lost executor" in log.read_text()

        product.begin(TARGET)
        wait_for(lambda: lake.in_scratch("listing/"))
        spark.kill_worker()
        spark.add_worker()
        again = product.result()
        assert (again["outcome"], again["digest"]) == ("dry_run", planned["digest"]), again

        product.begin(TARGET)
        wait_for(lambda: lake.in_scratch("read/"))
        lake.clear_scratch("read/")
        failed = product.result()
        assert failed["outcome"] == "failed", failed
        assert "was deleted while the plan needed it" in failed["reason"]

        assert (lake.keys(), lake.in_scratch()) == (before, [])
        done = product.cycle(TARGET, execute=True)
        assert (done["outcome"], done["deleted"], done["digest"]) == ("done", 1, planned["digest"]), done
        assert (lake.keys(), lake.in_scratch()) == (before - {STRAY}, [])


def documented_command():
    """The one of docs/engines.md, word by word."""
    text = (REPOSITORY / "docs" / "engines.md").read_text()
    (found,) = re.findall(r"^spark-submit --master spark://(?:.*\\\n)*.*$", text, re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "))


def test_the_documented_spark_submit_cleans_a_lake_on_s3(spark, lake, tmp_path):
    before = lake.keys()
    config = lake.settings(tmp_path, [*on_cluster(spark.url, scratch=lake.scratch)])
    lake.put("lakesweep.toml", config.read_bytes())
    config.unlink()
    given = {"spark://spark-master:7077": spark.url, "s3://ops/lakesweep.toml": f"s3://{lake.bucket}/lakesweep.toml"}
    words = [given.get(word, word) for word in documented_command()]
    small = ["--driver-memory", "512m", "--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
    small += ["--conf", "spark.shuffle.readHostLocalDisk=false", "--conf", "spark.sql.shuffle.partitions=2"]
    small += ["--driver-java-options", QUICK_JAVA, "--conf", f"spark.executor.extraJavaOptions={QUICK_JAVA}"]
    environment = os.environ | {
        "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "AWS_ENDPOINT_URL": lake.endpoint_url,
    }
    command = [words[0], *small, *words[1:]]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (lake.keys(), lake.in_scratch()) == (before - {STRAY}, []), done.stdout


@pytest.mark.skipif(not can_hide(), reason="nobody may have mounts of its own here")
def test_without_a_place_that_executors_reach_the_table_fails_at_once(spark, lake, tmp_path):
    with service(lake.settings(tmp_path, on_cluster(spark.url)), tmp_path / "service.log") as product:
        failed = product.cycle(TARGET)
    assert failed["outcome"] == "failed"
    assert failed["reason"].startswith("set engine.spark.scratch to a place that this service and all Spark executors")


def test_a_daemon_outlives_its_cluster_and_uses_the_next_one(spark, lake, tmp_path):
    lake.add("notes", appends=1)
    lake.say_size("events", 3)
    before, notes = lake.keys(), lake.keys("notes")
    config = lake.settings(
        tmp_path,
        [
            *on_cluster(spark.url, kind="auto", scratch=lake.scratch),
            "engine.spark_above_files = 3",
            f"orphan_cleanup = {{ enabled = true, dry_run = false, cleanup_interval_hours = {hours(seconds=2)} }}",
            'logging.format = "json"',
            'metrics.listen = "127.0.0.1:0"',
            'admin.listen = "127.0.0.1:0"',
        ],
    )
    with daemon(config, tmp_path / "daemon.log") as running:
        running.until(lambda: lake.in_scratch() and spark.executors(), "no job on the cluster")
        spark.kill()

        def ended(table, outcome):
            runs = running.events("run_finished")
            return [run for run in runs if (run["table"], run["outcome"]) == (table, outcome)]

        (failed, *_) = running.until(lambda: ended("events", "failed"), "the table did not fail")
        assert failed["reason"].startswith(f"no executor of the Spark cluster {spark.url} is left")
        assert failed["deleted"] == 0
        assert lake.keys() == before

        # What needs no cluster is still cleaned, and the service calls itself well.
        running.until(lambda: lake.keys("notes") == notes - {STRAY}, "the other table is not cleaned")
        lake.litter("notes")
        running.until(lambda: lake.keys("notes") == notes - {STRAY}, "the other table is not cleaned again")
        unreachable = f"the Spark master {spark.url} cannot be reached"
        running.until(lambda: ended("events", "failed")[-1]["reason"].startswith(unreachable), "not said why")
        assert running.get("/healthz")[0] == 200
        assert lake.keys() == before

        spark.start()
        running.until(lambda: ended("events", "done"), "it did not recover")
        assert lake.keys() == before - {STRAY}
        assert running.end(signal.SIGTERM) == 0


def test_a_connect_server_does_whole_cycles_and_comes_back_from_the_dead(lake, tmp_path):
    before = lake.keys()
    environment = seaweedfs.ENVIRONMENT
    with connect_server(tmp_path / "first", environment=environment) as (url, server):
        lines = ['engine.kind = "spark"', f'engine.spark.remote = "{url}"', f'engine.spark.scratch = "{lake.scratch}"']
        command = [sys.executable, "-m", "lakesweep", "plan", TARGET, "--json", "--config"]
        command.append(str(lake.settings(tmp_path, lines)))
        small = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        assert json.loads(small.stdout)["tables"][0]["orphans"]["count"] == 1, small.stderr
        config = lake.settings(tmp_path, [*lines, 'engine.spark.conf."spark.lakesweep.smallTableRows" = "0"'])
        with service(config, tmp_path / "service.log") as product:
            planned = product.cycle(TARGET)
            assert (planned["outcome"], planned["orphans"], planned["engine"]) == ("dry_run", 1, "spark"), planned

            product.begin(TARGET, execute=True)
            wait_for(lake.in_scratch)
            server.kill()
            failed = product.result()
            assert failed["outcome"] == "failed"
            assert failed["reason"].startswith(f"the Spark Connect server {url} is gone")
            assert lake.keys() == before

            port = int(url.rpartition(":")[2])
            with connect_server(tmp_path / "second", port=port, environment=environment) as (_, second):
                done = product.cycle(TARGET, execute=True)
                assert (done["outcome"], done["deleted"], done["digest"]) == ("done", 1, planned["digest"]), done
                assert lake.keys() == before - {STRAY}

                lake.litter()
                second.kill()
                second.wait()
                failed = product.cycle(TARGET, execute=True)
                assert failed["outcome"] == "failed"
                assert failed["reason"].startswith(f"the Spark Connect server {url} cannot be reached")
                assert lake.keys() == before
