"""What cycles ask of a real S3 server: without a listing, requests do not grow with the table."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import load_catalog
from tests.bench.places import S3Place
from tests.builders.dropping_table import Table, data

from lakesweep.daemon.app import App
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.settings.schema import Settings

BUCKET = "hourly"


async def executed(seaweedfs, home, files: int, listing: ListingMode = ListingMode.NEVER):
    """The requests of an executed cycle. A full plan came before it, as the last listing."""
    home.mkdir()
    place = S3Place(server=seaweedfs, bucket=BUCKET, prefix=f"acme/db/{home.name}")
    table = Table(place, files)
    s3 = {"s3.endpoint": seaweedfs.endpoint_url, "s3.access-key-id": "x", "s3.secret-access-key": "x"}
    properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "name": "lake"}
    catalog = load_catalog(**properties, **s3, warehouse=f"s3://{BUCKET}/acme")
    catalog.create_namespace("db")
    with catalog.engine.begin() as connection:  # to register it, pyiceberg would read it with its own client
        connection.exec_driver_sql(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            f"VALUES ('lake', 'db', 't', '{place.address}/{table.metadata}', 'TABLE')"
        )
    dataset = {"id": "d", "format": "iceberg", "catalog": properties, "namespace": "db"}
    settings = {
        "orphan_cleanup": {"dry_run": False},
        "service": {"data_dir": str(home / "state")},
        "storage": {"s3": {"endpoint_url": seaweedfs.endpoint_url, "path_style": True}},
        "tenants": [{"id": "acme", "root": f"s3://{BUCKET}/acme", "datasets": [dataset]}],
    }
    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve("acme/d/t")
        before = await app.run(work, execute=False)
        assert before.outcome is Outcome.DRY_RUN, before.reason
        (work,) = await app.resolve("acme/d/t")
        done = await app.run(work, execute=None, listing=listing)
    assert (done.outcome, done.plan.listed) == (Outcome.DONE, listing is ListingMode.ALWAYS), done.reason
    assert done.deletion.deleted.files == table.dropped + 2  # with its manifest and its manifest list
    left = place.names()
    assert not left & {data(number) for number in range(table.dropped)}
    assert {data(number) for number in range(table.dropped, files)} <= left
    return done.sent.requests


@pytest.fixture(scope="module")
def bucket(seaweedfs_server):
    seaweedfs_server.create_bucket(BUCKET)


@pytest.mark.usefixtures("bucket")
async def test_requests_without_a_listing_do_not_grow_with_the_table(seaweedfs, tmp_path):
    small = await executed(seaweedfs, tmp_path / "small", 1200)
    large = await executed(seaweedfs, tmp_path / "large", 3200)
    kinds = ("list", "get", "head", "put", "delete")
    assert [getattr(large, kind) for kind in kinds] == [getattr(small, kind) for kind in kinds]
    assert (large.head, large.delete) == (0, 3), "one request to delete for each page of each stage, and none to look"
    assert large.list <= 10, "seven times the table's metadata, three times the names beside the files; never the data"
    assert large.get <= 3, "two metadata files and what expires; lists are known"


@pytest.mark.soak
@pytest.mark.usefixtures("bucket")
async def test_a_hundred_thousand_objects_take_as_many_requests_as_a_thousand(seaweedfs, tmp_path):
    small = await executed(seaweedfs, tmp_path / "few", 1200)
    large = await executed(seaweedfs, tmp_path / "many", 100_000)
    full = await executed(seaweedfs, tmp_path / "listed", 100_000, ListingMode.ALWAYS)
    print(f"with a listing: {full}; without: {large}")
    assert (large.list, large.head) == (small.list, small.head)
    assert large.delete == 3
    assert large.get - small.get <= 1
    assert full.list > 100, "a page of keys for each request, and some to look ahead"
    assert full.total > 7 * large.total, "by pages alone; nine times where the listing looks ahead to run in parallel"
