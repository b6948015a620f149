"""Other settings for Spark while the service runs: the session of the old ones goes and another one comes."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil
import pytest
from tests.builders.daemons import daemon
from tests.builders.small_lake import LocalLake, hours, to_toml
from tests.peers.spark_cluster import QUICK_JAVA

TOO_EARLY = (
    "this process still runs Spark at local[1] under the previous settings: this table is planned at local[2] once "
    "that session ends"
)
TABLES = ("acme/d/orders", "acme/d/returns")


@pytest.fixture
def lake(tmp_path):
    made = LocalLake(root=tmp_path)
    made.add("acme", ["orders", "returns"])
    return made


def configure(lake, master, memory):
    """A settings file that plans everything on Spark."""
    path = lake.root / "lakesweep.toml"
    lines = [
        'engine.kind = "spark"',
        f'engine.spark.master = "{master}"',
        f'engine.spark.conf."spark.driver.memory" = "{memory}"',
        f'engine.spark.conf."spark.driver.extraJavaOptions" = "{QUICK_JAVA}"',
        'engine.spark.conf."spark.sql.shuffle.partitions" = "2"',
    ]
    cleaning = {"enabled": True, "dry_run": False, "cleanup_interval_hours": hours(seconds=1)}
    path.write_text("\n".join([*lines, to_toml(lake.settings(orphan_cleanup=cleaning))]))
    return path


def jvms(running):
    """The memory limits of its JVMs."""
    found = []
    for child in psutil.Process(running.process.pid).children():
        with suppress(psutil.Error):
            found += [word for word in child.cmdline() if word.startswith("-Xmx")]
    return found


@pytest.mark.spark
def test_new_settings_get_a_session_once_the_old_runs_end(lake):
    with daemon(configure(lake, "local[1]", "512m"), lake.root / "log") as running:
        running.until(lambda: any(lake.root.glob("state/scratch/*/listing")), "no job on Spark")
        assert jvms(running) == ["-Xmx512m"]
        configure(lake, "local[2]", "640m")
        running.process.send_signal(signal.SIGHUP)
        running.until_logged("settings_reloaded")
        running.until(lambda: jvms(running) == ["-Xmx640m"], "no session of the new settings")

        # Nothing that ran was cut off; what came too early says why.
        runs = running.events("run_finished")
        assert {run["reason"] for run in runs if run["outcome"] != "done"} <= {TOO_EARLY}
        assert [run for run in runs if run["outcome"] == "done"]

        def done_since():
            return {run["table"] for run in running.events("run_finished")[len(runs) :] if run["outcome"] == "done"}

        running.until(lambda: done_since() == {"orders", "returns"}, "not cleaned under the new settings")
        assert jvms(running) == ["-Xmx640m"]
        assert not any(lake.orphans_left(table) for table in TABLES)
        lake.check_live()
        assert running.end(signal.SIGTERM) == 0
