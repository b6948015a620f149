"""What Spark's workers on this machine start with."""

import os
import subprocess
import sys

import pytest

from lakesweep.engines.spark import driver
from lakesweep.engines.spark.config import SparkConfig

SCRIPT = """
import gc, os, sys
from lakesweep.engines.spark import worker_daemon
worker_daemon.prepare()
from lakesweep.formats import registry
for format in registry.FORMATS:
    registry.decoder(format)
print(gc.isenabled(), gc.get_freeze_count() > 10_000)
print(*(open(f"/proc/self/task/{thread}/comm").read().strip() for thread in os.listdir("/proc/self/task")))
print(*sys.modules)
"""


def test_workers_share_what_they_need_and_nothing_that_a_fork_would_break():
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    state, threads, names = done.stdout.splitlines()
    assert state == "True True"
    assert len(set(threads.split()) - {"jemalloc_bg_thd"}) == 1  # that one's library prepares itself for a fork
    imported = set(names.split())
    assert {"pyspark.worker", "pyarrow", "duckdb", "lakesweep.engines.spark.executor"} <= imported
    assert not {"pandas", "pyiceberg", "sqlalchemy", "fastapi"} & imported


@pytest.mark.parametrize(
    ("master", "collector"),
    [
        ("local", "Serial"),
        ("local[2]", "Serial"),
        ("local[4, 3]", "Serial"),
        ("local[5]", "Parallel"),
        ("local-cluster[2,1,1024]", "Parallel"),
    ],
)
def test_few_cores_have_a_small_heap(master, collector):
    defaults = driver.DriverBackend(SparkConfig(master=master))._local_defaults()
    assert f"-XX:+Use{collector}GC" in defaults["spark.driver.extraJavaOptions"]


def test_all_cores_are_as_many_as_there_are(monkeypatch):
    for cores, collector in ((2, "Serial"), (16, "Parallel")):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        defaults = driver.DriverBackend(SparkConfig())._local_defaults()
        assert f"-XX:+Use{collector}GC" in defaults["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(("chosen", "ours"), [(sys.executable, True), ("/opt/other/bin/python", False), (None, False)])
def test_another_interpreter_keeps_sparks_own_daemon(monkeypatch, chosen, ours):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    assert ("spark.python.daemon.module" in driver.DriverBackend(SparkConfig())._local_defaults()) is ours
