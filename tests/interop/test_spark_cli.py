"""The Spark engine from the command line: on a small real lake, and where Spark cannot start."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from tests.builders.small_lake import LocalLake, to_toml
from tests.peers.ports import free_port
from tests.peers.spark_cluster import QUICK_JAVA
from tests.peers.spark_service import service

import lakesweep as product

TABLE = "acme/d/orders"
ON_SPARK = (
    'engine.kind = "spark"',
    'engine.spark.master = "local[2]"',
    f'engine.spark.conf."spark.driver.extraJavaOptions" = "{QUICK_JAVA}"',
    'engine.spark.conf."spark.sql.codegen.wholeStage" = "false"',
    'engine.spark.conf."spark.sql.shuffle.partitions" = "2"',
)


def lakesweep(*arguments, **environment):
    """Run a command; a variable that is None is taken away."""
    command = [sys.executable, "-m", "lakesweep", *map(str, arguments)]
    everything = {**os.environ, "NO_COLOR": "1", **environment}
    kept = {name: value for name, value in everything.items() if value is not None}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=kept, check=False)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    made = LocalLake(root=tmp_path_factory.mktemp("lake"))
    made.add("acme", ["orders"])
    return made


@pytest.fixture
def config(lake, tmp_path):
    """A function (lines of `[engine]`) -> settings file."""

    def write(*engine):
        path = tmp_path / "lakesweep.toml"
        own = to_toml(lake.settings(service={"data_dir": str(tmp_path / "state")}))
        path.write_text("\n".join([*engine, own]))
        return path

    return write


def documents(done):
    assert done.returncode == 0, done.stderr
    return {table["table"]: table for table in json.loads(done.stdout)["tables"]}


@pytest.mark.spark
def test_both_engines_give_the_same_plan_and_say_why_they_ran(config):
    one = documents(lakesweep("plan", TABLE, "--json", "--config", config()))[TABLE]
    other = documents(lakesweep("plan", TABLE, "--json", "--config", config(*ON_SPARK)))[TABLE]
    assert (other["orphans"], other["verdicts"], other["missing"]) == (one["orphans"], one["verdicts"], one["missing"])
    assert one["orphans"]["count"] > 0
    assert other["engine"] == {"kind": "spark", "why": 'engine.kind = "spark"'}


@pytest.fixture
def fails(config, lake):
    """Run with these lines of settings where the engine cannot start: the one sentence that says why."""

    def run(*engine, **environment):
        done = lakesweep("run", TABLE, "--execute", "--json", "--config", config(*engine), **environment)
        assert done.returncode == 4, done.stderr
        (table,) = json.loads(done.stdout)["tables"]
        assert (table["outcome"], table["deleted"]["count"]) == ("failed", 0)
        assert "\n" not in table["reason"]
        assert len(lake.orphans_left(TABLE)) == 3
        return table["reason"]

    return run


def test_an_empty_java_home_is_named(fails, tmp_path):
    told = fails('engine.kind = "spark"', JAVA_HOME=str(tmp_path))
    assert "apt install openjdk" in told
    assert told.startswith(f"Spark needs Java 17 or newer: none in JAVA_HOME={tmp_path}")


def test_a_path_without_java_is_reported_with_what_to_do(fails, tmp_path):
    told = fails('engine.kind = "spark"', JAVA_HOME=None, PATH=str(tmp_path))
    assert "apt install openjdk" in told
    assert told.startswith("Spark needs Java 17 or newer: none found, set JAVA_HOME or put java on the PATH")


@pytest.mark.parametrize(("version", "named"), [("11.0.2", "11.0.2"), ("1.8.0_202", "8.0_202")])
def test_an_old_java_is_named(fails, tmp_path, version, named):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    told = fails('engine.kind = "spark"', JAVA_HOME=str(tmp_path))
    assert "apt install openjdk" in told
    assert told.startswith(f"Spark needs Java 17 or newer: {java} is {named}")


@pytest.mark.parametrize(
    ("key", "scheme", "secret", "kind"),
    [("master", "spark", "", "Spark master"), ("remote", "sc", "/;token=hush", "Spark Connect server")],
)
def test_a_cluster_that_does_not_answer_is_named_without_its_token(fails, key, scheme, secret, kind):
    address = f"{scheme}://127.0.0.1:{free_port()}"
    reason = fails('engine.kind = "spark"', f'engine.spark.{key} = "{address}{secret}"')
    assert reason.startswith(f"the {kind} {address}")
    assert "cannot be reached: " in reason
    assert "hush" not in reason


@pytest.mark.spark
def test_executors_without_pyarrow_are_reported(fails, tmp_path):
    """An environment that has the product, and nothing of what it depends on."""
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "product.pth").write_text(str(Path(product.__file__).parents[1]))
    reason = fails(*ON_SPARK, f'engine.spark.conf."spark.pyspark.python" = "{python}"')
    assert reason == (
        "the Spark executors do not have the Python package pyarrow: install this version of lakesweep there"
    )


@pytest.mark.spark
def test_a_jvm_that_dies_fails_the_table_and_the_next_cycle_starts_another(config, tmp_path):
    with service(config(*ON_SPARK), tmp_path / "service.log") as running:
        running.begin(TABLE)
        while not (jvms := running.jvms_at_work()):
            time.sleep(0.05)
        jvms[0].kill()
        broken = running.result()
        assert broken["outcome"] == "failed"
        assert broken["reason"].startswith("the JVM that runs Spark has ended")
        assert running.cycle(TABLE)["outcome"] == "dry_run"
        (idle,) = running.jvms_at_work()
        idle.kill()
    assert running.exit_code == 0


NOTEBOOK = """
import asyncio, sys
from pyspark.sql import SparkSession
from lakesweep.cli.job import main

async def cell():
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.scheduler.mode", "FAIR")
    spark = builder.config("spark.driver.extraJavaOptions", sys.argv[1]).getOrCreate()
    code = main(["plan", sys.argv[2], "--json", "--config", sys.argv[3]])
    assert spark.range(3).count() == 3, "the session of the notebook was stopped"
    pools = spark.sparkContext._jsc.sc().getAllPools()
    names = {pools.apply(n).name() for n in range(pools.size())}
    assert any(name.startswith("spark_") for name in names), f"tables have no pools of their own: {names}"
    return code

sys.exit(asyncio.run(cell()))
"""


@pytest.mark.spark
def test_a_notebook_plans_in_its_own_session_whatever_the_file_says(config):
    """In a notebook an event loop runs already."""
    file = config('engine.kind = "inprocess"', f'engine.spark.remote = "sc://127.0.0.1:{free_port()}"')
    command = [sys.executable, "-c", NOTEBOOK, QUICK_JAVA, TABLE, str(file)]
    variables = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=variables)
    found = documents(done)[TABLE]
    assert (found["orphans"]["count"], found["engine"]["kind"]) == (3, "spark"), found
