"""A table on a real S3 server, cleaned by an S3 Inventory of it: keys, times and etags as a server gives them."""

from datetime import UTC, datetime, timedelta

from tests.builders.inventories import csv_file, s3_inventory
from tests.builders.small_lake import LONG_AGO, small_table

from lakesweep.daemon.app import App
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

BUCKET, PREFIX, LISTS = "inventoried", "acme/bronze/t/", "lists"


async def test_what_an_inventory_lists_goes_unless_it_was_written_anew(seaweedfs, tmp_path):
    client = seaweedfs.client()
    for name in (BUCKET, LISTS):
        seaweedfs.create_bucket(name)

    def put(name, data):
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}{name}", Body=data)

    def names():
        found = client.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX)["Contents"]
        return {one["Key"].removeprefix(PREFIX) for one in found}

    table = small_table("t")
    odd, rewritten = "k=a b+%/part ü.parquet", "part-rewritten.parquet"
    for name, data in (*table.objects(), (odd, b"odd"), (rewritten, b"before")):
        put(name, data)
        seaweedfs.set_mtime(BUCKET, f"{PREFIX}{name}", LONG_AGO)
    rows = [
        {
            "path": f"s3://{BUCKET}/{one['Key']}",
            "size_bytes": one["Size"],
            "modified_at": one["LastModified"],
            "etag": one["ETag"].strip('"'),
        }
        for one in client.list_objects_v2(Bucket=BUCKET)["Contents"]
    ]

    def deliver(address, data):
        place = Location.parse(address)
        client.put_object(Bucket=place.authority, Key=place.path, Body=data)

    home = f"s3://{LISTS}/lake/{BUCKET}/daily"
    made = datetime.now(UTC) - timedelta(hours=1)
    s3_inventory([csv_file(rows[::2]), csv_file(rows[1::2])], made, home=home, source_bucket=BUCKET, store=deliver)
    put(rewritten, b"after!")
    put("part-unknown.parquet", b"x")
    seaweedfs.set_mtime(BUCKET, f"{PREFIX}part-unknown.parquet", LONG_AGO)
    dataset = {
        "id": "d",
        "format": "delta",
        "location": f"s3://{BUCKET}/acme/bronze",
        "inventory": f"s3://{LISTS}/lake",
    }
    settings = {
        "orphan_cleanup": {"dry_run": False},
        "service": {"data_dir": str(tmp_path)},
        "storage": {"s3": {"endpoint_url": seaweedfs.endpoint_url, "path_style": True}},
        "tenants": [{"id": "acme", "root": f"s3://{BUCKET}/acme", "datasets": [dataset]}],
    }
    before = names()
    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve("acme/d/t")
        run = await app.run(work, execute=None)
    assert run.outcome is Outcome.DONE, run.reason
    assert before - names() == {*table.orphans, odd}
    assert (run.spared, run.deletion.deleted.files) == (1, len(table.orphans) + 1)
