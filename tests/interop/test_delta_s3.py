"""Delta tables on a real S3 server, written and read by deltalake, found and cleaned through the application."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.servers import seaweedfs as s3_server
from tests.servers.seaweedfs import SeaweedFS

from lakesweep.daemon.app import App
from lakesweep.model.run import Outcome
from lakesweep.settings.schema import Settings

BUCKET = "lake"
VALUES = ["a b", "e:f", "100%", "x/y", "ü", "#1", "%3A", "+", "?&"]
PROPERTIES = {"delta.deletedFileRetentionDuration": "interval 1 second", "delta.logRetentionDuration": "interval 1 day"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def _options(s3: SeaweedFS) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": s3.endpoint_url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        **s3_server.ENVIRONMENT,
    }


def _settings(s3: SeaweedFS, data_dir: Path) -> Settings:
    return Settings.model_validate(
        {
            "orphan_cleanup": {"grace_period_hours": 0, "allow_short_grace": True},
            "service": {"data_dir": str(data_dir)},
            "storage": {"s3": {"endpoint_url": s3.endpoint_url, "path_style": True}},
            "tenants": [
                {
                    "id": "acme",
                    "root": f"s3://{BUCKET}/acme/",
                    "datasets": [{"id": "bronze", "format": "delta", "location": f"s3a://{BUCKET}/acme/bronze"}],
                }
            ],
        }
    )


def _rows(table: str, s3: SeaweedFS) -> list[tuple[int, str]]:
    rows = DeltaTable(table, storage_options=_options(s3)).to_pyarrow_table().to_pylist()
    return sorted((row["n"], row["k"]) for row in rows)


def _keys(s3: SeaweedFS, prefix: str) -> set[str]:
    pages = s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return {one["Key"].removeprefix(prefix) for page in pages for one in page.get("Contents", ())}


@pytest.mark.usefixtures("environment")
async def test_a_table_on_s3_is_found_cleaned_and_read_as_before(s3: SeaweedFS, tmp_path: Path):
    table = f"s3://{BUCKET}/acme/bronze/eu/t"
    prefix = "acme/bronze/eu/t/"
    for number, value in enumerate(VALUES):
        rows = pa.table({"n": [number, number + 100], "k": [value, value]})
        write_deltalake(
            table, rows, mode="append", partition_by=["k"], configuration=PROPERTIES, storage_options=_options(s3)
        )
    handle = DeltaTable(table, storage_options=_options(s3))
    handle.delete("n >= 100")
    handle.create_checkpoint()
    handle.delete("n = 0")
    planted = {"k=a b/stray #1.parquet", "stray%2F.parquet"}
    for name in planted:
        s3.client().put_object(Bucket=BUCKET, Key=prefix + name, Body=b"stray")
    nine_days_ago = datetime.now(UTC) - timedelta(days=9)
    for name in _keys(s3, f"{prefix}_delta_log/"):
        # One second per version: a log has its order on S3, too.
        s3.set_mtime(BUCKET, f"{prefix}_delta_log/{name}", nine_days_ago + timedelta(seconds=_version(name)))
    rows, before = _rows(table, s3), _keys(s3, prefix)
    live = {uri.removeprefix(f"{table}/") for uri in handle.file_uris()}
    time.sleep(2)
    async with App.open(_settings(s3, tmp_path)) as app:
        (work,) = await app.resolve("acme/bronze/eu/t")
        run = await app.run(work, execute=True)
    assert run.outcome is Outcome.DONE, run.reason
    assert run.expired_snapshots == tuple(str(version) for version in range(9))
    left = _keys(s3, prefix)
    assert {name for name in left if not name.startswith("_delta_log/")} == live
    assert planted <= before - left
    assert _rows(table, s3) == rows


def _version(name: str) -> int:
    return int(name[:20]) if name[:20].isdigit() else 0
