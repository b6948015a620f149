"""The Spark of tests that plan small tables: two cores, little memory, and no time spent in compilers."""

from __future__ import annotations

from lakesweep.engines.spark.config import SparkConfig

SMALL_SPARK = SparkConfig(
    master="local[2]",
    conf=(
        ("spark.driver.memory", "1g"),
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.shuffle.partitions", "2"),
    ),
)
