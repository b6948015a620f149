"""What a cycle asks of its store: counted as the server counts it, and told beforehand."""

import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from tests.builders.iceberg import SCHEMA
from tests.builders.paimon_model import ModelTable
from tests.builders.small_lake import LONG_AGO, small_table
from tests.servers.seaweedfs import ACCESS_KEY, REGION, SECRET_KEY

from lakesweep.cleanup.report import plan_document, run_document
from lakesweep.daemon.app import App
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.settings.schema import Settings
from lakesweep.storage.memory import bucket as memory_bucket
from lakesweep.storage.memory import forget

KINDS = ("list", "get", "head", "put", "delete")
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


async def test_a_run_counts_the_requests_that_the_server_answered(seaweedfs, tmp_path):
    async with App.open(lake(seaweedfs, iceberg, tmp_path)) as app:
        work = await opened(app)
        before = seaweedfs.requests()
        run = await app.run(work, execute=None)
        answered = seaweedfs.requests() - before
        again = await app.run(work, execute=None)
    assert run.outcome is Outcome.DONE, run.reason
    sent = run_document(run)["requests"]["sent"]
    assert sum(sent[kind] for kind in KINDS) == answered
    assert (sent["put"], sent["delete"]) == (1, 5)  # the commit's metadata file; four batches and the expired files
    assert sent["bytes_read"] > 0
    assert sent["cost"] == round(
        sent["list"] * 0.005 + sent["get"] * 4e-7 + sent["head"] * 4e-7 + sent["put"] * 5e-6, 6
    )
    assert run_document(again)["requests"]["sent"]["delete"] == 0  # each run counts for itself


@pytest.mark.parametrize("deletion", ["delete", "trash"])
@pytest.mark.parametrize("make", [delta, paimon, iceberg])
async def test_a_plan_estimates_within_a_tenth_what_a_cycle_will_take(seaweedfs, tmp_path, make, deletion):
    settings = lake(seaweedfs, make, tmp_path, deletion=deletion)
    async with App.open(settings) as app:
        plan = plan_document(await app.plan(await opened(app)), ())
    async with App.open(settings) as app:
        done = await app.run(await opened(app), execute=None)
    assert done.outcome is Outcome.DONE, done.reason
    run = run_document(done)["requests"]
    sent = run["sent"]
    for told in (plan["requests"]["planned"], run["planned"]):
        assert sum(told[kind] for kind in KINDS) == pytest.approx(sum(sent[kind] for kind in KINDS), rel=0.1)
        for kind in KINDS:
            assert told[kind] == pytest.approx(sent[kind], rel=0.1, abs=2), kind


@pytest.mark.parametrize("make", [delta, paimon, iceberg])
async def test_nothing_new_is_seen_in_one_to_three_requests(seaweedfs, tmp_path, make):
    settings = lake(seaweedfs, make, tmp_path, listing_interval_hours=24)
    async with App.open(settings) as app:
        for _ in range(4):
            work = await opened(app)
            before = seaweedfs.requests()
            done = await app.run(work, execute=None, listing=ListingMode.WHEN_DUE)
            answered = seaweedfs.requests() - before
            assert done.outcome is Outcome.DONE, done.reason
    assert done.unchanged
    requests = run_document(done)["requests"]
    for told in (requests["planned"], requests["sent"]):
        assert answered == sum(told[kind] for kind in KINDS) <= 3
