"""Tables that pyiceberg wrote, in the catalog it shares with Spark, judged by Iceberg's Java code as all others."""

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from tests.interop import judge
from tests.interop.product import everything_old
from tests.peers import aging, oracle
from tests.peers.spark import ON_SPARK
from tests.peers.spark_table import SparkTable

pytestmark = ON_SPARK

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.int32()), ("_kind", pa.string())])


def rows(first, count=4):
    return pa.Table.from_pylist(
        [{"id": n, "name": f"name{n}", "day": n % 2, "_kind": f"k{n % 2}"} for n in range(first, first + count)],
        schema=SCHEMA,
    )


def format_v1(create):
    table = create({"format-version": "1"})
    for first in (0, 10, 20):
        table.append(rows(first))
    table.delete(EqualTo("id", 1))


def partitioned(create):
    table = create({"format-version": "2"})
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(rows(0))
    with table.update_spec() as spec:
        spec.add_identity("_kind")
    table.append(rows(10))
    table.overwrite(rows(20), overwrite_filter=EqualTo("day", 1))
    table.dynamic_partition_overwrite(rows(30, 1))


def referenced(create):
    table = create({})
    table.append(rows(0))
    first = table.current_snapshot().snapshot_id
    table.append(rows(10))
    table.manage_snapshots().create_tag(first, "first").create_branch(
        table.current_snapshot().snapshot_id, "side"
    ).commit()
    table.append(rows(50), branch="side")
    table.delete(EqualTo("id", 2))
    table.upsert(rows(10, 2).set_column(1, "name", pa.array(["new", "new"])), join_cols=["id"])
    table.append(rows(20))


def rolled_back(create):
    table = create({})
    table.append(rows(0))
    good = table.current_snapshot().snapshot_id
    table.append(rows(10))
    table.overwrite(rows(20))
    table.manage_snapshots().rollback_to_snapshot(good).commit()
    table.append(rows(30))


def object_storage(create):
    table = create({"write.object-storage.enabled": "true", "write.metadata.previous-versions-max": "2"})
    for first in (0, 10, 20, 30):
        table.append(rows(first))
    table.overwrite(rows(40))


def two_writers(create):
    """Spark and pyiceberg take turns."""
    table = create({})
    table.append(rows(0))
    spark_table = create.spark_table
    spark_table.sql("DELETE FROM {t} WHERE id = 1")
    spark_table.call("compute_table_stats")
    table.refresh().append(rows(10))
    spark_table.call("rewrite_manifests")
    table.refresh().delete(EqualTo("id", 11))


ZOO = {make.__name__: make for make in (format_v1, partitioned, referenced, rolled_back, object_storage, two_writers)}


class Creator:
    """Creates the table that a builder asks for."""

    def __init__(self, spark_table):
        self.spark_table = spark_table

    def __call__(self, properties):
        catalog = self.spark_table.catalog.python()
        catalog.create_namespace(self.spark_table.namespace)
        return catalog.create_table(self.spark_table.identifier, SCHEMA, properties=properties)


@pytest.fixture
def written(lake):
    def make(name):
        table = SparkTable(catalog=lake, namespace=f"py_{name}_{len(lake.python().list_namespaces())}", name=name)
        ZOO[name](Creator(table))
        aging.age(table.root)
        aging.plant(f"{table.root}/{name}", "data/00000-0-stray-00001.parquet", "metadata/stray-m0.avro")
        return table

    return make


@pytest.mark.parametrize("name", ZOO)
async def test_the_plan_matches_an_independent_count_and_iceberg(written, product, name):
    table = written(name)
    for retain_last in (1, 2):
        seen = await judge.check_plan(table, product(table), everything_old(retain_last=retain_last))
        assert seen.files.unreferenced


@pytest.mark.parametrize("name", ZOO)
async def test_after_a_run_every_retained_row_is_read(written, product, name):
    table = written(name)

    await judge.check_run(table, product(table), everything_old(retain_last=2))
    await product(table).execute(table.name, everything_old(retain_last=2))

    assert oracle.orphans(table, table.root) == frozenset()
