"""The same cycle on S3: a table in a bucket expires, drops partitions and loses its orphans, over HTTP."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.builders.paimon_model import ModelTable

from lakesweep.daemon.app import App
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.settings.schema import Settings
from lakesweep.storage.memory import bucket, forget


def uploaded(server: Any, name: str, options: dict[str, str]) -> ModelTable:
    """A model table, built in memory and put into a real bucket, committed files and all of them old."""
    table = ModelTable(bucket(name), "wh/d.db/t", datetime.now(UTC) - timedelta(days=2), options)
    table.append("2020-01-01", extras=1)
    for number in range(4):
        table.append("2026-01-01")
        table.upgrade("2026-01-01")
        if number == 2:
            table.tag("kept")
            table.compact("2026-01-01")
    table.index()
    table.stray("old", old=True)
    client = server.client()
    client.create_bucket(Bucket=name)
    for key, held in table.bucket.objects.items():
        client.put_object(Bucket=name, Key=key, Body=held.data)
        server.set_mtime(name, key, held.modified_at)
    return table


def keys(server: Any, name: str) -> set[str]:
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=name, Prefix="wh/d.db/t/")
    return {item["Key"].removeprefix("wh/d.db/t/") for page in pages for item in page.get("Contents", ())}


async def run(server: Any, name: str, scratch: Path, **cleanup: Any) -> CleanupRun:
    settings = Settings.model_validate(
        {
            "service": {"data_dir": str(scratch)},
            "storage": {"s3": {"endpoint_url": server.endpoint_url, "region": "us-east-1", "path_style": True}},
            "orphan_cleanup": {"enabled": True, **cleanup},
            "tenants": [
                {
                    "id": "acme",
                    "root": f"s3://{name}/wh",
                    "datasets": [{"id": "lake", "format": "paimon", "warehouse": f"s3://{name}/wh", "database": "d"}],
                }
            ],
        }
    )
    async with App.open(settings) as app:
        (work,) = await app.resolve("acme/lake/t")
        return await app.run(work, execute=True)


async def test_a_table_in_a_bucket_is_cleaned_to_exactly_what_is_needed(seaweedfs: Any, tmp_path: Path) -> None:
    name = f"b{uuid.uuid4().hex[:12]}"
    try:
        table = uploaded(seaweedfs, name, {"snapshot.expire.limit": "50"})
        done = await run(seaweedfs, name, tmp_path, max_snapshot_age_hours=0)
        assert done.outcome is Outcome.DONE, done.reason
        latest = table.lines["main"].next_id - 1
        assert len(done.expired_snapshots) == latest - 1
        standing = table.needs[f"snapshot/snapshot-{latest}"] | table.needs["tag/tag-kept"]
        left = keys(seaweedfs, name)
        assert {key for key in left if key.startswith(("dt=", "manifest/", "index/"))} == standing
        assert {key for key in left if key.startswith("snapshot/snapshot-")} == {f"snapshot/snapshot-{latest}"}
        again = await run(seaweedfs, name, tmp_path, max_snapshot_age_hours=0)
        assert (again.outcome, again.deletion.deleted.files) == (Outcome.DONE, 0)
    finally:
        forget(name)


async def test_partitions_in_a_bucket_are_dropped_by_a_conditional_write(seaweedfs: Any, tmp_path: Path) -> None:
    name = f"b{uuid.uuid4().hex[:12]}"
    try:
        table = uploaded(seaweedfs, name, {"partition.expiration-time": "1000 d"})
        done = await run(seaweedfs, name, tmp_path)
        assert done.expired_partitions == ("dt=2020-01-01",)
        number = table.lines["main"].next_id
        body = seaweedfs.client().get_object(Bucket=name, Key=f"wh/d.db/t/snapshot/snapshot-{number}")["Body"].read()
        document = json.loads(body)
        assert (document["commitKind"], document["deltaRecordCount"]) == ("OVERWRITE", -10)
    finally:
        forget(name)
