"""One old table of each format on an S3 server, and the settings to clean it."""

import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from tests.builders.iceberg import SCHEMA
from tests.builders.paimon_model import ModelTable
from tests.builders.small_lake import LONG_AGO, small_table
from tests.servers.seaweedfs import ACCESS_KEY, REGION, SECRET_KEY

from lakesweep.settings.schema import Settings
from lakesweep.storage.memory import bucket as memory_bucket
from lakesweep.storage.memory import forget

ORPHANS = 40


def delta(server, client, bucket, place):
    """One commit."""
    for name, data in small_table("t", orphans=ORPHANS).objects():
        client.put_object(Bucket=bucket, Key=f"wh/db.db/t/{name}", Body=data)
    return {"id": "d", "format": "delta", "location": f"s3://{bucket}/wh/db.db"}


def paimon(server, client, bucket, place):
    """Snapshots that expire."""
    made = ModelTable(memory_bucket(bucket), "wh/db.db/t", datetime.now(UTC) - timedelta(days=2), {})
    for _ in range(4):
        made.append("2026-01-01")
        made.upgrade("2026-01-01")
    for number in range(ORPHANS):
        made.stray(f"old{number}", old=True)
    for key, held in made.bucket.objects.items():
        client.put_object(Bucket=bucket, Key=key, Body=held.data)
    forget(bucket)
    return {"id": "d", "format": "paimon", "warehouse": f"s3://{bucket}/wh", "database": "db"}


def iceberg(server, client, bucket, place):
    """Snapshots that expire, behind a SQL catalog."""
    catalog = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "name": "lake"}
    keys = {"s3.endpoint": server.endpoint_url, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
    writer = load_catalog(**catalog, warehouse=f"s3://{bucket}/wh", **keys, **{"s3.region": REGION})
    writer.create_namespace("db")
    table = writer.create_table("db.t", SCHEMA)
    for number in range(6):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]}))
    data = table.location().removeprefix(f"s3://{bucket}/")
    for number in range(ORPHANS):
        client.put_object(Bucket=bucket, Key=f"{data}/data/orphan-{number}.parquet", Body=b"x")
    return {"id": "d", "format": "iceberg", "catalog": catalog, "namespace": "db"}


def lake(server, make, place, **cleanup):
    """The settings for one old table in a bucket of its own."""
    bucket = f"b{uuid.uuid4().hex[:12]}"
    server.create_bucket(bucket)
    client = server.client()
    dataset = make(server, client, bucket, place)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    for key in [one["Key"] for page in pages for one in page["Contents"]]:
        server.set_mtime(bucket, key, LONG_AGO)
    rules = {"dry_run": False, "max_snapshot_age_hours": 0, "batch_size": 10, "ceilings": {"share": 1.0}}
    return Settings.model_validate(
        {
            "orphan_cleanup": {**rules, "allow_short_grace": True, **cleanup},
            "prices": {"list_per_1000": 5},
            "service": {"data_dir": str(place)},
            "storage": {"s3": {"endpoint_url": server.endpoint_url, "path_style": True}},
            "tenants": [{"id": "acme", "root": f"s3://{bucket}/wh", "datasets": [dataset]}],
        }
    )


async def opened(app):
    (work,) = await app.resolve("acme/d/t")
    return work
