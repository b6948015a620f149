"""One real Spark with Delta's own jar, in a process of its own: a process can hold only one JVM, and the one of the
tests belongs to another peer.

    python -m tests.peers.delta_spark WORK      (what `session` starts)
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.peers.conversation import Conversation, answer_all, talking_to
from tests.peers.jars import classpath, jars


class DeltaSpark:
    """What the child can be asked for."""

    def __init__(self, conversation: Conversation) -> None:
        self._ask = conversation.ask
        self.pid = conversation.pid

    def sql(self, statement: str) -> list[list[Any]]:
        """Run one statement; rows as lists of plain values."""
        return self._ask({"sql": statement})

    def rows(self, path: Path, *, version: int | None = None) -> list[list[Any]]:
        """Everything that a table has now or had at a version, sorted."""
        at = "" if version is None else f" VERSION AS OF {version}"
        return sorted(self.sql(f"SELECT * FROM delta.`{path}`{at}"), key=str)

    def checkpoint(self, path: Path) -> None:
        """Write a checkpoint of the newest version, without the log cleanup that follows it otherwise."""
        self._ask({"checkpoint": str(path)})

    def clean_log(self, path: Path) -> None:
        """Delta's own log cleanup, as it runs after a checkpoint."""
        self._ask({"clean_log": str(path)})


@contextmanager
def session(work: Path) -> Iterator[DeltaSpark]:
    """Start the child and stop it by its id."""
    with talking_to("tests.peers.delta_spark", work) as conversation:
        yield DeltaSpark(conversation)


def _child(work: Path) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415  # the parent never needs it

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": classpath(*jars("delta-spark")),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work} -XX:+UseSerialGC",
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "default"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        # Retentions of a second must not keep tests from reading and restoring older versions.
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.appName("lakesweep-delta-peer").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    answer_all(functools.partial(_serve, spark))
    spark.stop()


def _serve(spark: Any, request: dict[str, Any]) -> Any:
    if "sql" in request:
        rows = spark.sql(request["sql"]).collect()
        return json.loads(json.dumps([list(row) for row in rows], default=str))
    jvm = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    path = request.get("checkpoint") or request["clean_log"]
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    nothing = jvm.scala.Option.empty()
    snapshot = log.update(False, nothing, nothing)
    if "checkpoint" in request:
        log.checkpointAndCleanUpDeltaLog(snapshot, nothing)
    else:
        log.doLogCleanup(snapshot, nothing)
    return None


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
