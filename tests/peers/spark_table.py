"""One table that Spark writes: SQL with the names filled in, Iceberg's procedures, and its Java writer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.peers.spark import SharedCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTable:
    """One table in a shared catalog. In SQL `{t}` is its full name, `{id}` that without the catalog's, `{c}`."""

    catalog: SharedCatalog
    namespace: str
    name: str

    @property
    def identifier(self) -> str:
        """`namespace.table`, as pyiceberg and procedures name it."""
        return f"{self.namespace}.{self.name}"

    @property
    def root(self) -> str:
        """The tenant's root: everything this table may own is below it."""
        return f"{self.catalog.warehouse}/{self.namespace}"

    def sql(self, statement: str) -> list[Any]:
        """Run one statement."""
        text = statement.replace("{t}", f"{{c}}.{self.identifier}").replace("{id}", self.identifier)
        return self.catalog.sql(text)

    def create(self, properties: str = "'format-version'='2'", *, partitioned_by: str = "") -> None:
        """The table all builders begin with."""
        partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
        self.sql(
            f"CREATE TABLE {{t}} (id bigint, name string, day int, _kind string) USING iceberg {partitioning} "
            f"TBLPROPERTIES ({properties})"
        )

    def insert(self, first: int, count: int = 4, *, into: str = "{t}") -> None:
        """Append rows `first … first + count` as one file per partition."""
        rows = ",".join(f"({n},'name{n}',{n % 2},'k{n % 2}')" for n in range(first, first + count))
        self.sql(f"INSERT INTO {into} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")

    def newest(self) -> int:
        """The snapshot committed last, on whatever branch."""
        found: int = self.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at DESC LIMIT 1")[0][0]
        return found

    def call(self, procedure: str, arguments: str = "") -> list[Any]:
        """One of Iceberg's own procedures on this table."""
        return self.sql(f"CALL {{c}}.system.{procedure}(table => '{{id}}'{', ' if arguments else ''}{arguments})")

    @contextmanager
    def spark_conf(self, key: str, value: str) -> Iterator[None]:
        """A session setting for a while."""
        self.catalog.spark.conf.set(key, value)
        try:
            yield
        finally:
            self.catalog.spark.conf.unset(key)


def pause() -> int:
    """A moment, in epoch milliseconds, strictly between the commits before and those after it."""
    time.sleep(0.002)
    moment = time.time_ns() // 1_000_000
    time.sleep(0.002)
    return moment


def write_equality_delete(table: SparkTable, row_id: int) -> None:
    """Delete by value the rows that `insert` gave this id. Spark only reads such deletes; the Java API writes them."""
    jvm = table.catalog.spark._jvm
    java_table = table.catalog.java_table(table.identifier)
    columns = jvm.java.util.ArrayList()
    columns.add("name")
    schema = java_table.schema().select(columns)
    field_ids = table.catalog.spark.sparkContext._gateway.new_array(jvm.int, 1)
    field_ids[0] = java_table.schema().findField("name").fieldId()
    factory = (
        getattr(jvm.org.apache.iceberg.data, "GenericFileWriterFactory$Builder")(java_table)
        .equalityFieldIds(field_ids)
        .equalityDeleteRowSchema(schema)
        .build()
    )
    places = jvm.org.apache.iceberg.io.OutputFileFactory.builderFor(java_table, 1, row_id).build()
    writer = factory.newEqualityDeleteWriter(places.newOutputFile(), java_table.spec(), None)
    record = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
    record.setField("name", f"name{row_id}")  # a text: py4j would hand over a small bigint as an int
    writer.write(record)
    writer.close()
    java_table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
