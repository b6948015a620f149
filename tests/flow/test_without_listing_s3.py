"""What cycles ask of a real S3 server: without a listing, requests do not grow with the table."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.catalog import load_catalog
from tests.bench.places import S3Place
from tests.builders.iceberg_manifests import ADDED, DELETED, Entry, Manifest, list_bytes, manifest_bytes

from lakesweep.daemon.app import App
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.settings.schema import Settings

BUCKET = "hourly"
FIELDS = [{"id": 1, "name": "id", "required": False, "type": "long"}]
SCHEMA = {"type": "struct", "schema-id": 0, "fields": FIELDS}


def data(number: int) -> str:
    return f"data/{number:08d}-{uuid.uuid5(uuid.NAMESPACE_OID, str(number))}.parquet"


class Table:
    """So many files; the old snapshot has one in a hundred that the new one has dropped."""

    def __init__(self, place: S3Place, files: int) -> None:
        self.place, self.files, self.dropped = place, files, files // 100
        place.make(data(number) for number in range(files))
        kept = [self.manifest(range(first, min(first + 5000, files))) for first in range(self.dropped, files, 5000)]
        gone, drop = (self.manifest(range(self.dropped), status) for status in (ADDED, DELETED))
        now = datetime.now(UTC)
        snapshots = [
            self.snapshot(1, [gone, *kept], now - timedelta(days=60)),
            self.snapshot(2, [drop, *kept], now - timedelta(days=50)),
        ]
        self.metadata = f"metadata/00001-{uuid.uuid4()}.metadata.json"
        place.put([(self.metadata, json.dumps(self.document(snapshots)).encode())])

    def manifest(self, numbers: range, status: int = ADDED) -> Manifest:
        entries = tuple(Entry(path=f"{self.place.address}/{data(one)}", status=status) for one in numbers)
        name = f"metadata/{uuid.uuid4()}-m0.avro"
        manifest = Manifest(path=f"{self.place.address}/{name}", entries=entries, data=manifest_bytes(entries))
        self.place.put([(name, manifest.data)])
        return manifest

    def snapshot(self, number: int, manifests: list[Manifest], at: datetime) -> dict[str, object]:
        name = f"metadata/snap-{number}-1-{uuid.uuid4()}.avro"
        self.place.put([(name, list_bytes(manifests))])
        return {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": int(at.timestamp() * 1000),
            "manifest-list": f"{self.place.address}/{name}",
            "schema-id": 0,
            "summary": {"operation": "append"},
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
        }

    def document(self, snapshots: list[dict[str, object]]) -> dict[str, object]:
        return {
            "format-version": 2,
            "table-uuid": str(uuid.uuid4()),
            "location": self.place.address,
            "last-updated-ms": snapshots[-1]["timestamp-ms"],
            "last-column-id": 1,
            "schemas": [SCHEMA],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": 2,
            "snapshots": snapshots,
            "refs": {"main": {"type": "branch", "snapshot-id": 2}},
            "last-sequence-number": 2,
        }


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
    assert full.total > 6 * large.total, "more where the listing runs in parallel, as that looks ahead more often"
