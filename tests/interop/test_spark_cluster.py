"""Whole cycles on a real standalone cluster, with the lake on S3 over HTTP.

The product runs as a process of its own, so that it can be watched while its executors or its cluster die in the middle
of a job and come back.
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
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from tests.builders.daemons import daemon
from tests.builders.s3_lake import STRAY, S3Lake, wait_for
from tests.builders.small_lake import hours
from tests.peers.spark_cluster import HOME, OTHER_USER, QUICK_JAVA, cluster, why_not_apart
from tests.peers.spark_service import service
from tests.servers import seaweedfs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = "acme/prod/events"


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with seaweedfs.seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def apart():
    """For what is proven only if workers and service share no disk."""
    if reason := why_not_apart():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Its workers are another user, see nothing of what the service has on disk, and have keys that cannot delete in a
    lake: S3 is all that they have in common. Where that is not possible, tests that use `apart` are skipped."""
    work, hidden = tmp_path_factory.mktemp("cluster"), None if why_not_apart() else tmp_path_factory.getbasetemp()
    with cluster(work, environment=seaweedfs.READER, hidden=hidden) as running:
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


PHASES = ("started", "listing/", "read/", "sides/", "judged/")
"""What there is in scratch when the executors list, read sources, compare, judge, and look again."""


def lost_executors(log):
    """By what the driver wrote."""
    return set(re.findall(r"Lost executor (\d+) on", log.read_text()))


def test_the_keys_of_the_executors_cannot_change_the_lake(s3, lake):
    executors = s3.client(seaweedfs.READER)
    stray = {"Bucket": lake.bucket, "Key": f"acme/events/{STRAY}"}
    assert executors.get_object(**stray)["Body"].read() == b"stray"
    for change in (executors.delete_object, executors.put_object):
        with pytest.raises(ClientError, match="AccessDenied"):
            change(**stray)
    executors.put_object(Bucket=lake.scratch_bucket, Key="plans/x", Body=b"")


@pytest.mark.usefixtures("apart")
def test_a_cluster_without_a_shared_disk_does_cycles_despite_losses(spark, lake, tmp_path):
    before = lake.keys()
    log = tmp_path / "service.log"
    with service(lake.settings(tmp_path, on_cluster(spark.url, scratch=lake.scratch)), log) as product:
        planned = product.cycle(TARGET)
        assert (planned["outcome"], planned["orphans"], planned["engine"]) == ("dry_run", 1, "spark"), planned

        for phase in PHASES:
            product.begin(TARGET)
            wait_for(lambda phase=phase: lake.in_scratch(phase) and spark.executors())
            executor, lost = spark.executors()[0], lost_executors(log)
            assert executor.uids().real == OTHER_USER
            executor.kill()
            wait_for(lambda lost=lost: lost_executors(log) > lost, 60)
            again = product.result()
            assert (again["outcome"], again["digest"]) == ("dry_run", planned["digest"]), (phase, again)

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


def documented_settings():
    """Those for a job, likewise."""
    text = (REPOSITORY / "docs" / "engines.md").read_text()
    (found,) = re.findall(r"^The settings file for a job .*?^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


def test_the_documented_spark_submit_cleans_a_lake_on_s3(spark, lake, tmp_path):
    before = lake.keys()
    places = {
        '"s3://ops/lakesweep-scratch"': f'"{lake.scratch}"',
        '"s3://ops/lakesweep"': f'"s3://{lake.scratch_bucket}/kept"',
        '"/tmp/lakesweep"': f'"{tmp_path}/state"',
    }
    settings = documented_settings()
    for address, own in places.items():
        assert settings.count(address) == 1
        settings = settings.replace(address, own)
    lake.put("lakesweep.toml", f"{settings}\n{lake.tables()}".encode())
    given = {"spark://spark-master:7077": spark.url, "s3://ops/lakesweep.toml": f"s3://{lake.bucket}/lakesweep.toml"}
    words = [given.get(word, word) for word in documented_command()]
    small = ["--driver-memory", "512m", "--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
    small += ["--conf", "spark.shuffle.readHostLocalDisk=false", "--conf", "spark.sql.shuffle.partitions=2"]
    small += ["--driver-java-options", QUICK_JAVA, "--conf", f"spark.executor.extraJavaOptions={QUICK_JAVA}"]
    environment = os.environ | {
        "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "AWS_ENDPOINT_URL": lake.endpoint_url,
        "LAKESWEEP_ENGINE__SPARK__CONF": '{"spark.lakesweep.smallTableRows": "0"}',  # every step on the cluster
    }
    command = [words[0], *small, *words[1:]]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (lake.keys(), lake.in_scratch("plan-")) == (before - {STRAY}, []), done.stdout
    assert lake.in_scratch("kept/"), "nothing outlives the job"


@pytest.mark.usefixtures("apart")
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
