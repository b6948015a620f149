"""A fresh report tells what a bucket stores beside tables, whose it is and what it costs. No cycle counts it."""

import json

import pytest
from tests.builders.small_lake import LONG_AGO, small_table, to_toml
from tests.servers import s3_stub

from lakesweep.cleanup.lake_report import Price
from lakesweep.cli.main import main
from lakesweep.daemon import lake_report, leftovers
from lakesweep.daemon.app import App
from lakesweep.settings.schema import Settings

TABLE = small_table("t", orphans=5)
KINDS = ("noncurrent_versions", "incomplete_uploads")
GB = 10**9


def settings(endpoint_url, directory, bucket="lake", **further):
    return {
        "orphan_cleanup": {"dry_run": False, "ceilings": {"share": 1.0}},
        "service": {"data_dir": str(directory)},
        "prices": {"storage_per_gb_month": 0.02},
        "storage": {"s3": {"endpoint_url": endpoint_url, "path_style": True}},
        "tenants": [
            {
                "id": "acme",
                "root": f"s3://{bucket}/acme",
                "datasets": [{"id": "d", "format": "delta", "location": f"s3://{bucket}/acme/bronze"}],
            }
        ],
        **further,
    }


@pytest.fixture
async def stub(s3_credentials):
    """A bucket that keeps versions, with leftovers of a table, of its dataset, of the tenant and of somebody else."""
    async with s3_stub.s3_stub("lake") as server:
        server.modified = LONG_AGO
        server.buckets["lake"] = {f"acme/bronze/t/{name}": data for name, data in TABLE.objects()}
        server.versions["lake"] = [
            *((key, data) for key, data in server.buckets["lake"].items()),
            ("acme/bronze/t/old.parquet", None),
            ("acme/bronze/t/old.parquet", b"7 bytes"),
            ("acme/bronze/loose", b"current"),
            ("acme/bronze/loose", b"11 bytes =)"),
            ("acme2/t/old.parquet", None),
            ("acme2/t/old.parquet", b"not acme's"),
        ]
        server.uploads["lake"] = [("acme/bronze/t/big", [2 * GB, GB]), ("acme/else/big", [5])]

        async def rules(request):
            if "versioning" in request.query:
                return s3_stub.xml("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
            return s3_stub.error(404, "NoSuchLifecycleConfiguration") if "lifecycle" in request.query else None

        server.fault = rules
        yield server


async def reported(app):
    found = lake_report.named(await app.works([]))
    return await lake_report.make(app.settings, app.state, app.clock, found, {"acme"})


def sizes(found):
    """(files, bytes) by kind; None: not counted."""
    return found and tuple((one["count"], one["bytes"]) if (one := found[kind]) else None for kind in KINDS)


async def test_only_a_fresh_report_counts_and_later_ones_remember(stub, tmp_path):
    async with App.open(Settings.model_validate(settings(stub.endpoint_url, tmp_path))) as app:
        (work,) = await app.resolve("acme/d/t")
        await app.plan(work)
        await app.run(work, execute=None)
        before = await reported(app)
        assert stub.count("versions") + stub.count("uploads") + stub.count("parts") == 0
        assert (before["totals"]["leftovers"], before["leftover_counts"]) == (None, [])
        await leftovers.count(app, app.settings.tenants[0])
        asked = len(stub.requests)
        after = await reported(app)
        assert len([one for one in stub.requests[asked:] if one.operation in ("versions", "uploads", "parts")]) == 0
    (table,), (dataset,), (tenant,) = after["tables"], after["datasets"], after["tenants"]
    assert sizes(table["leftovers"]) == ((1, 7), (1, 3 * GB))
    assert sizes(dataset["unclaimed"]) == ((1, 11), (0, 0))
    assert sizes(tenant["unclaimed"]) == ((0, 0), (1, 5))
    assert sizes(dataset["leftovers"]) == ((2, 18), (1, 3 * GB))
    assert sizes(tenant["leftovers"]) == sizes(after["totals"]["leftovers"]) == ((2, 18), (2, 3 * GB + 5))
    assert table["leftovers"]["cost_per_month"] == Price(per_gb_month=0.02, currency="USD").of(3 * GB) == 0.06
    assert after["totals"]["waste_bytes"] == 0  # they are nothing that a cycle could delete
    counts = {one["kind"]: one for one in after["leftover_counts"]}
    assert {kind: one["requests"] for kind, one in counts.items()} == {
        "trash": 0, "noncurrent_versions": 1, "incomplete_uploads": 3,
    }  # fmt: skip
    assert all(one["complete"] for one in counts.values())
    assert "NoncurrentVersionExpiration" in counts["noncurrent_versions"]["advice"]
    assert "AbortIncompleteMultipartUpload" in counts["incomplete_uploads"]["advice"]


async def test_what_the_store_refuses_is_not_counted_and_the_report_goes_on(stub, tmp_path):
    stub.fault, rules = None, stub.fault

    async def refuse(request):
        refused = request.operation in ("versions", "uploads")
        return s3_stub.error(403, "AccessDenied") if refused else await rules(request)

    stub.fault = refuse
    async with App.open(Settings.model_validate(settings(stub.endpoint_url, tmp_path))) as app:
        await leftovers.count(app, app.settings.tenants[0])
        found = await reported(app)
    assert sizes(found["totals"]["leftovers"]) == (None, None)
    assert found["totals"]["leftovers"]["trash"] == {"count": 0, "bytes": 0}
    problems = {one["kind"]: one["problem"] for one in found["leftover_counts"]}
    assert "s3:ListBucketVersions" in problems["noncurrent_versions"]
    assert "s3:ListBucketMultipartUploads" in problems["incomplete_uploads"]


def test_a_real_server_s_versions_and_uploads_are_in_the_report(seaweedfs, tmp_path, capsys):
    bucket, client = "leftovers", seaweedfs.client()
    seaweedfs.create_bucket(bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for name, data in TABLE.objects():
        client.put_object(Bucket=bucket, Key=f"acme/bronze/t/{name}", Body=data)
    for body in (b"first", b"second", b"third"):
        client.put_object(Bucket=bucket, Key="acme/bronze/t/again", Body=body)
    client.put_object(Bucket=bucket, Key="acme/bronze/gone", Body=b"nobody's")
    client.delete_object(Bucket=bucket, Key="acme/bronze/gone")
    key = "acme/bronze/t/a+b é"
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 1000)
    config, page = tmp_path / "lakesweep.toml", tmp_path / "report.html"
    config.write_text(to_toml(settings(seaweedfs.endpoint_url, tmp_path / "state", bucket)))
    assert main(["report", "--fresh", "--json", "--html", str(page), "--config", str(config)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sizes(found["tables"][0]["leftovers"]) == ((2, len(b"first") + len(b"second")), (1, 1000))
    assert sizes(found["datasets"][0]["unclaimed"]) == ((1, len(b"nobody's")), (0, 0))
    assert "acme/d, unclaimed" in page.read_text()
    assert main(["report", "--config", str(config)]) == 0
    text = capsys.readouterr().out
    assert "noncurrent versions: 19 B in 3 files" in text
    assert "incomplete uploads: 1000 B in 1 file" in text
