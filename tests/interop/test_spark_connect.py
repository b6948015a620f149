"""Whole cycles on a Spark Connect server, with the lake on S3 over HTTP and no Java on our side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from tests.builders.paimon_steps import Step
from tests.builders.s3_lake import STRAY, S3Lake, wait_for
from tests.laws import both_engines
from tests.peers.spark_cluster import connect_server
from tests.peers.spark_service import service
from tests.servers import seaweedfs

from lakesweep.engines.spark.config import SparkConfig

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TARGET = "acme/prod/events"


@pytest.fixture
def lake(tmp_path, monkeypatch):
    for name, value in seaweedfs.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with seaweedfs.seaweedfs(tmp_path / "s3") as server:
        yield S3Lake(server, tmp_path, f"lake{time.monotonic_ns()}")


def test_a_connect_server_does_whole_cycles_and_comes_back_from_the_dead(lake, tmp_path):
    """There is no Java on our side."""
    before = lake.keys()
    (tmp_path / "nothing").mkdir()
    no_java = {"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(tmp_path / "nothing")}
    assert shutil.which("java", path=no_java["PATH"]) is None
    environment = seaweedfs.READER
    with connect_server(tmp_path / "first", environment=environment) as (url, server):
        lines = ['engine.kind = "spark"', f'engine.spark.remote = "{url}"', f'engine.spark.scratch = "{lake.scratch}"']
        command = [sys.executable, "-m", "lakesweep", "plan", TARGET, "--json", "--config"]
        command.append(str(lake.settings(tmp_path, lines)))
        variables = os.environ | no_java
        small = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=variables)
        assert json.loads(small.stdout)["tables"][0]["orphans"]["count"] == 1, small.stderr
        config = lake.settings(tmp_path, [*lines, 'engine.spark.conf."spark.lakesweep.smallTableRows" = "0"'])
        with service(config, tmp_path / "service.log", no_java) as product:
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


async def test_every_format_has_the_same_plan_over_connect_as_in_process(tmp_path):
    """One small table of each; the laws draw more of them, in a session of this process."""
    written = [Step("append", ("a",)), Step("append", ("b",)), Step("overwrite", ("a",))]
    subjects = [
        both_engines.on_iceberg(tmp_path / "iceberg", ["append", "overwrite", "delete"], 0.5, 1),
        both_engines.on_delta(tmp_path / "delta", ["add", "add", "remove", "checkpoint", "add"], 12, "classic", "full"),
        both_engines.on_paimon(tmp_path / "paimon", written, 1),
    ]
    with connect_server(tmp_path / "server") as (url, _):
        for subject in subjects:
            one = await both_engines.planned(subject, "inprocess")
            other = await both_engines.planned(subject, "spark", 0, SparkConfig(remote=url))
            both_engines.check_that_plans_agree(subject, None, one, other)
