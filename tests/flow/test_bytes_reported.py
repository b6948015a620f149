"""A bucket that keeps versions frees nothing: plan, run, documents, metrics and the audit trail say so."""

import json

import pytest
from tests.builders.small_lake import LONG_AGO, small_table

from lakesweep.cleanup.report import plan_document, run_document
from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

PREFIX = "acme/bronze/t/"
TABLE = small_table("t", orphans=5)
SIZE = sum(len(path) for path in TABLE.orphans)


@pytest.fixture
def kept(seaweedfs):
    """A bucket with one table, which began to keep versions afterwards."""
    bucket = "versioned"
    seaweedfs.create_bucket(bucket)
    client = seaweedfs.client()
    for name, data in TABLE.objects():
        client.put_object(Bucket=bucket, Key=f"{PREFIX}{name}", Body=data)
        seaweedfs.set_mtime(bucket, f"{PREFIX}{name}", LONG_AGO)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket, client


async def test_a_delete_that_frees_nothing_is_reported_everywhere(kept, seaweedfs, tmp_path):
    bucket, client = kept
    settings = {
        "orphan_cleanup": {"dry_run": False},
        "service": {"data_dir": str(tmp_path)},
        "storage": {"s3": {"endpoint_url": seaweedfs.endpoint_url, "path_style": True}},
        "tenants": [
            {
                "id": "acme",
                "root": f"s3://{bucket}/acme",
                "datasets": [{"id": "d", "format": "delta", "location": f"s3://{bucket}/acme/bronze"}],
            }
        ],
    }
    async with App.open(Settings.model_validate(settings)) as app:
        (work,) = await app.resolve("acme/d/t")
        planned = plan_document(await app.plan(work), ())
        run = await app.run(work, execute=None)
        exposed = app.metrics.exposition().decode()
    assert run.outcome is Outcome.DONE, run.reason
    done = run_document(run)
    assert (planned["freed_bytes"], planned["retained_bytes"]) == (0, {"trash": 0, "versions": SIZE})
    assert done["deleted"]["bytes"] == SIZE
    assert (done["freed_bytes"], done["retained_bytes"]) == (0, {"trash": 0, "versions": SIZE})
    assert (
        done["store"]
        == planned["store"]
        == {
            "versioning": "on",
            "noncurrent_days": None,
            "abort_uploads_days": None,
        }
    )
    assert len(done["warnings"]) == 1
    assert "NoncurrentVersionExpiration" in done["warnings"][0]
    assert 'lakesweep_bytes_freed_total{tenant="acme"} 0.0' in exposed
    assert f'lakesweep_bytes_retained_total{{tenant="acme",where="versions"}} {float(SIZE)}' in exposed
    markers = {
        one["Key"]: one["VersionId"]
        for one in client.list_object_versions(Bucket=bucket, Prefix=PREFIX).get("DeleteMarkers", [])
    }
    assert audited(tmp_path) == {f"s3://{bucket}/{key}": version for key, version in markers.items()}
    assert len(markers) == len(TABLE.orphans)


def audited(place):
    """Which delete markers the audit trail names, by path."""
    lines = [line for file in place.rglob("audit/**/*") if file.is_file() for line in text_of(file).splitlines()]
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return {one["path"]: one["delete_marker"] for one in records if one.get("record") == "deleted"}


def text_of(file):
    return file.read_text(errors="replace")
