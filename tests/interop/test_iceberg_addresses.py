"""One place has many spellings: a table written under one and registered under another loses nothing."""

import itertools
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders import spark_iceberg
from tests.interop import judge
from tests.interop.product import everything_old
from tests.peers import aging, independent
from tests.peers.independent import plain
from tests.peers.spark import ON_SPARK, sqlite_catalog
from tests.peers.spark_table import SparkTable

pytestmark = ON_SPARK

_numbers = itertools.count(1)


def reregistered(table, catalog, address):
    """The same table in another catalog, its metadata file spelled as `address` says."""
    metadata = table.catalog.python().load_table(table.identifier).metadata_location
    catalog.sql(f"CREATE NAMESPACE IF NOT EXISTS {{c}}.{table.namespace}")
    catalog.sql(
        f"CALL {{c}}.system.register_table(table => '{table.identifier}', "
        f"metadata_file => '{address(plain(metadata))}')"
    )
    return SparkTable(catalog=catalog, namespace=table.namespace, name=table.name)


@pytest.mark.parametrize("root_scheme", ["s3", "s3a", "s3n"])
@pytest.mark.parametrize("written", ["s3a", "s3"])
async def test_s3_schemes_are_one_place(spark, s3, s3_access, s3_store, product, tmp_path, written, root_scheme):
    number = next(_numbers)
    prefix = f"lake/addresses{number}"
    writer = sqlite_catalog(
        spark, f"writer{number}", database=tmp_path / "w.db", warehouse=f"{written}://{prefix}", s3=s3_access
    )
    reader = sqlite_catalog(
        spark, f"reader{number}", database=tmp_path / "r.db", warehouse=f"s3://{prefix}", s3=s3_access
    )
    other = {"s3a": "s3", "s3": "s3a"}[written]
    table = reregistered(
        spark_iceberg.build(writer, "position_deletes", namespace="ns"),
        reader,
        lambda address: address.replace("s3://", f"{other}://", 1),
    )
    client = s3.client()
    client.put_object(Bucket="lake", Key=f"addresses{number}/ns/{table.name}/data/00000-0-stray-00001.parquet")
    past = datetime.now(UTC) - timedelta(days=10)
    for address in independent.stored_on_s3(client, f"s3://{prefix}", older_than=0).files:
        s3.set_mtime("lake", address.removeprefix("s3://lake/"), past)
    here = replace(product(table), root=f"{root_scheme}://{prefix}/ns", storage=s3_store)

    seen = await judge.check_run(
        table,
        here,
        everything_old(retain_last=2),
        listing=lambda: independent.stored_on_s3(client, f"s3://{prefix}/ns", older_than=time.time() - aging.DAY),
    )

    assert seen.files.expired
    assert seen.files.unreferenced
    assert seen.run.plan.missing_count == 0


@pytest.mark.parametrize("spelling", ["", "file:", "file://"])
async def test_local_spellings_are_one_place(spark, build, product, tmp_path, spelling):
    number = next(_numbers)
    written = build("position_deletes")
    reader = sqlite_catalog(spark, f"local{number}", database=tmp_path / "r.db", warehouse=written.catalog.warehouse)
    table = reregistered(written, reader, lambda address: f"{spelling}{address}")
    aging.age(table.root)
    aging.plant(f"{table.root}/{table.name}", "data/00000-0-stray-00001.parquet")
    here = replace(product(table), root=plain(table.root) if spelling == "file:" else table.root)

    seen = await judge.check_run(table, here, everything_old(retain_last=2))

    assert seen.files.expired
    assert seen.files.unreferenced
    assert seen.run.plan.missing_count == 0
