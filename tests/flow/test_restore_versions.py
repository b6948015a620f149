"""A whole cycle and its restore on a real bucket with versioning: nothing is copied, the markers are taken away."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from tests.builders.small_lake import small_table

from lakesweep.daemon.app import App, new_run_id
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

ADA = Trigger(by=TriggeredBy.COMMAND, who="ada")


@pytest.mark.parametrize("deletion", ["trash", "delete"])
async def test_a_run_on_a_bucket_with_versioning_is_taken_back_by_its_own_markers(seaweedfs, tmp_path, deletion):
    bucket, client = f"versions-{uuid.uuid4().hex[:12]}", seaweedfs.client()
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    table = small_table("t")
    log = table.log.replace(
        '"configuration": {}', '"configuration": {"delta.deletedFileRetentionDuration": "interval 0 hours"}'
    )
    for path, data in table.objects():
        client.put_object(Bucket=bucket, Key=f"acme/t/{path}", Body=log.encode() if "_delta_log" in path else data)
    settings = Settings.model_validate(
        {
            "orphan_cleanup": {
                "enabled": True,
                "dry_run": False,
                "deletion": deletion,
                "grace_period_hours": 0,
                "allow_short_grace": True,
            },
            "service": {"data_dir": str(tmp_path / "state")},
            "state": {"url": "memory://"},
            "storage": {"s3": {"endpoint_url": seaweedfs.endpoint_url, "path_style": True}},
            "tenants": [
                {
                    "id": "acme",
                    "root": f"s3://{bucket}/acme",
                    "datasets": [{"id": "d", "format": "delta", "location": f"s3://{bucket}/acme"}],
                }
            ],
        }
    )
    async with App.open(settings) as app:
        (work,) = await app.resolve("acme/d/t")
        await asyncio.sleep(2)  # the store tells whole seconds, and only what is older than now may go
        done = await app.run(work, execute=True)
        assert (done.outcome, done.deletion.deleted.files) == (Outcome.DONE, 3), done.reason
        keys = {one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]}
        assert not any(".lakesweep-trash" in key or "failed" in key for key in keys)
        undone = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (undone.result.restored.files, undone.result.not_restorable) == (3, 0)
        again = await app.restoring(done.id, (), ADA).execute(new_run_id())
        assert (again.result.restored.files, again.result.already_there) == (0, 3)
    for path in table.orphans:
        assert client.get_object(Bucket=bucket, Key=f"acme/t/{path}")["Body"].read() == path.encode()
