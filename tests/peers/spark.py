"""One real Spark with Iceberg's own runtime jar, and catalogs that it shares with pyiceberg.

The JVM takes about 15 s to start, so a test process has one session for all its tests; `ON_SPARK` keeps those
tests on one xdist worker. Spark and pyiceberg meet in an SQLite file: same catalog name, same tables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tests.peers.jars import classpath, jars

ON_SPARK = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
"""`pytestmark` of a module whose tests use the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """How to reach an S3 server: for Spark's S3FileIO and for pyiceberg alike."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    @property
    def properties(self) -> dict[str, str]:
        """Catalog properties. Both programs understand the first three, Java alone the others."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
            "s3.path-style-access": "true",
            "client.region": self.region,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCatalog:
    """One catalog seen by Spark (as `name`) and by pyiceberg (through `properties`)."""

    spark: SparkSession
    name: str
    warehouse: str
    properties: dict[str, str]
    """What pyiceberg, and so a dataset in the settings, opens the same catalog with."""

    def python(self) -> Catalog:
        """A fresh pyiceberg client on it."""
        return load_catalog(self.name, **self.properties)

    def sql(self, statement: str) -> list[Any]:
        """Run one statement; `{c}` stands for the catalog's name."""
        rows: list[Any] = self.spark.sql(statement.replace("{c}", self.name)).collect()
        return rows

    def java_table(self, identifier: str) -> Any:
        """A Java `Table`, freshly loaded, through py4j. `identifier` is `namespace.table`."""
        catalog = self.spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(
            self.spark._jsparkSession, self.name
        )
        namespace, _, table = identifier.rpartition(".")
        identity = self.spark._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{namespace}.{table}")
        found = catalog.loadTable(identity)
        found.refresh()
        return found


@contextmanager
def session(work: Path, *, memory: str = "1g") -> Iterator[SparkSession]:
    """A local Spark: two cores, loopback only, little memory, nothing written outside `work`."""
    libraries = classpath(*jars("iceberg-spark"), *jars("iceberg-s3"))
    _end_the_jvm()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # our own jobs may run in this session too
    spark = (
        SparkSession.builder.appName("lakesweep-peer")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", memory)
        # On the system class path, so that py4j reaches Iceberg's classes by name.
        .config("spark.driver.extraClassPath", libraries)
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={work} -XX:+UseSerialGC")
        .config("spark.local.dir", str(work / "local"))
        .config("spark.sql.warehouse.dir", str(work / "default"))
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "true")  # tests of our own jobs may run in this session, and read its status
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
        _end_the_jvm()


def _end_the_jvm() -> None:
    """A stopped session leaves its JVM behind, and the next one would run there, without its own class path."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    assert SparkContext._active_spark_context is None, "somebody else's session still runs in this process"
    gateway.shutdown()
    gateway.proc.kill()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def sqlite_catalog(
    spark: SparkSession, name: str, *, database: Path, warehouse: str, s3: S3Access | None = None
) -> SharedCatalog:
    """A JDBC catalog on an SQLite file. Spark makes its tables; pyiceberg then finds them there."""
    java: dict[str, str] = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{database}",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
        "cache-enabled": "false",
    }
    python = {"type": "sql", "uri": f"sqlite:///{database}", "init_catalog_tables": "false", "warehouse": warehouse}
    if s3 is not None:
        java |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **s3.properties}
        python |= s3.properties
    _register(spark, name, java)
    shared = SharedCatalog(spark=spark, name=name, warehouse=warehouse, properties=python)
    shared.sql("SHOW NAMESPACES IN {c}")
    return shared


def rest_catalog(spark: SparkSession, name: str, *, uri: str, warehouse: str) -> SharedCatalog:
    """A REST catalog, for tables that Spark writes and a server commits."""
    _register(spark, name, {"type": "rest", "uri": uri, "cache-enabled": "false"})
    return SharedCatalog(spark=spark, name=name, warehouse=warehouse, properties={"type": "rest", "uri": uri})


def _register(spark: SparkSession, name: str, properties: dict[str, str]) -> None:
    """Spark opens a catalog at its first use, so one can be added while the session runs."""
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
