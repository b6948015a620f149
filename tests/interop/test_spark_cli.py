"""The Spark engine from the command line: on a small real lake, and where Spark cannot start."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.peers.process import free_port
from tests.peers.spark_service import service

from lakesweep.cli import demo_lake

TABLE = "acme/shop/orders"


def lakesweep(*arguments, **environment):
    command = [sys.executable, "-m", "lakesweep", *map(str, arguments)]
    everything = {**os.environ, "NO_COLOR": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=everything, check=False)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return demo_lake.build(tmp_path_factory.mktemp("demo") / "lake")


@pytest.fixture
def config(lake, tmp_path):
    """A function (lines of `[engine]`) -> settings file."""

    def write(*engine):
        lines = [f'service.data_dir = "{tmp_path}/state"', *engine]
        for tenant in lake.settings["tenants"]:
            lines += ["[[tenants]]", f'id = "{tenant["id"]}"', f'root = "{tenant["root"]}"']
            for dataset in tenant["datasets"]:
                catalog = ", ".join(f'{key} = "{value}"' for key, value in dataset["catalog"].items())
                lines += ["[[tenants.datasets]]", f'id = "{dataset["id"]}"', 'format = "iceberg"']
                lines += [f'namespace = "{dataset["namespace"]}"', f"catalog = {{ {catalog} }}"]
        path = tmp_path / "lakesweep.toml"
        path.write_text("\n".join(lines))
        return path

    return write


def documents(done):
    assert done.returncode == 0, done.stderr
    return {table["table"]: table for table in json.loads(done.stdout)["tables"]}


@pytest.mark.spark
def test_spark_and_inprocess_give_the_same_plan_and_the_report_says_which_and_why(config):
    one = documents(lakesweep("plan", TABLE, "--json", "--config", config()))[TABLE]
    chosen = ('engine.kind = "spark"', 'engine.spark.master = "local[2]"', "engine.spark_above_files = 1")
    other = documents(lakesweep("plan", TABLE, "--json", "--config", config(*chosen)))[TABLE]
    assert (other["orphans"], other["verdicts"], other["missing"]) == (one["orphans"], one["verdicts"], one["missing"])
    assert one["orphans"]["count"] > 0
    assert other["engine"] == {"kind": "spark", "why": 'engine.kind = "spark"'}


def failed(done):
    """The one sentence of a table whose engine could not start."""
    assert done.returncode == 4, done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    assert table["outcome"] == "failed"
    assert table["deleted"]["count"] == 0
    assert "\n" not in table["reason"]
    return table["reason"]


def test_without_java_a_run_fails_with_one_sentence_and_deletes_nothing(config, lake, tmp_path):
    before = lake.size()
    settings = config('engine.kind = "spark"')
    reason = failed(lakesweep("run", TABLE, "--execute", "--json", "--config", settings, JAVA_HOME=str(tmp_path)))
    assert reason == f"Spark needs Java 17 or newer: none in JAVA_HOME={tmp_path}"
    assert lake.size() == before


def test_an_old_java_is_named(config, lake, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    before = lake.size()
    settings = config('engine.kind = "spark"')
    reason = failed(lakesweep("run", TABLE, "--execute", "--json", "--config", settings, JAVA_HOME=str(tmp_path)))
    assert reason == f"Spark needs Java 17 or newer: {java} is 11.0.2"
    assert lake.size() == before


@pytest.mark.spark
def test_executors_without_our_packages_are_named(config, lake):
    bare = Path(sys.executable).resolve()  # the interpreter behind the virtual environment
    before = lake.size()
    settings = config(
        'engine.kind = "spark"',
        'engine.spark.master = "local[1]"',
        f'engine.spark.conf."spark.pyspark.python" = "{bare}"',
    )
    reason = failed(lakesweep("run", TABLE, "--execute", "--json", "--config", settings))
    assert reason.startswith("the Spark executors lack the Python package ")
    assert lake.size() == before


@pytest.mark.spark
def test_a_jvm_that_dies_fails_the_table_and_the_next_cycle_starts_another(config, tmp_path):
    settings = config('engine.kind = "spark"', 'engine.spark.master = "local[2]"')
    with service(settings, tmp_path / "service.log") as product:
        product.begin(TABLE)
        while not (jvms := product.jvms_at_work()):
            time.sleep(0.05)
        jvms[0].kill()
        broken = product.result()
        assert broken["outcome"] == "failed"
        assert broken["reason"].startswith("the JVM that runs Spark has ended")
        assert product.cycle(TABLE)["outcome"] == "dry_run"


@pytest.mark.parametrize(
    ("key", "scheme", "kind"), [("master", "spark", "Spark master"), ("remote", "sc", "Spark Connect server")]
)
def test_a_cluster_that_does_not_answer_is_named(config, lake, key, scheme, kind):
    address = f"{scheme}://127.0.0.1:{free_port()}"
    before = lake.size()
    settings = config('engine.kind = "spark"', f'engine.spark.{key} = "{address}"')
    reason = failed(lakesweep("run", TABLE, "--execute", "--json", "--config", settings))
    assert reason.startswith(f"the {kind} {address} cannot be reached: ")
    assert lake.size() == before
