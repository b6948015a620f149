"""Make the example lake that the settings file describes: tables with a history, and files that nothing refers to.

Usage: seed.py LAKESWEEP_TOML. A tenant whose root holds anything is left alone, so it may run again.
"""

# ruff: noqa: INP001, T201  # a program by itself, and it says what it does

from __future__ import annotations

import io
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import load_catalog

ROWS = pa.table({"id": pa.array(range(1000), pa.int64()), "name": [f"row {number}" for number in range(1000)]})
COMMITS = 5
ORPHANS = 8
_WAIT_SECONDS = 120


def main(settings_file: str) -> None:
    """Seed every tenant of the settings file."""
    settings = tomllib.loads(Path(settings_file).read_text(encoding="utf-8"))
    store = settings["storage"]["s3"]
    client = connect(store)
    create_bucket(client, urlsplit(settings["service"]["artifacts"]).netloc)
    for tenant in settings["tenants"]:
        root = urlsplit(tenant["root"])
        create_bucket(client, root.netloc)
        if client.list_objects_v2(Bucket=root.netloc, Prefix=root.path.strip("/"), MaxKeys=1).get("KeyCount"):
            print(f"{tenant['id']}: already there")
            continue
        for dataset in tenant["datasets"]:
            if dataset["format"] == "iceberg":
                seed_iceberg(client, store, tenant["root"], dataset)
            else:
                seed_delta(client, dataset["location"])
        print(f"{tenant['id']}: made")


def connect(store: dict[str, Any]) -> Any:
    """A client of the S3 server, once that answers."""
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=store["endpoint_url"],
        region_name=store["region"],
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            client.list_buckets()
        except (BotoCoreError, ClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return client


def create_bucket(client: Any, bucket: str) -> None:
    """Make sure that there is such a bucket."""
    if bucket not in {one["Name"] for one in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=bucket)


def seed_iceberg(client: Any, store: dict[str, Any], root: str, dataset: dict[str, Any]) -> None:
    """Two tables in a catalog, with some snapshots each."""
    properties = {name: value for name, value in dataset["catalog"].items() if name != "name"}
    access = {"s3.endpoint": store["endpoint_url"], "s3.region": store["region"]}
    catalog = load_catalog(dataset["catalog"]["name"], **properties, **access, warehouse=root)
    catalog.create_namespace_if_not_exists(dataset["id"])
    for name in ("orders", "customers"):
        table = catalog.create_table(f"{dataset['id']}.{name}", schema=ROWS.schema)
        for _ in range(COMMITS):
            table.append(ROWS)
        table.overwrite(ROWS)
        leave_orphans(client, f"{table.location()}/data")


def seed_delta(client: Any, location: str) -> None:
    """One table with some commits. Its own retention is a minute, or Lakesweep would wait for a week."""
    place = f"{location}/clicks"
    schema = {"type": "struct", "fields": [field("id", "long"), field("name", "string")]}
    metadata = {
        "id": "clicks",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {"delta.deletedFileRetentionDuration": "interval 1 minute"},
    }
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for version in range(COMMITS):
        name, data = f"part-{version:05}.parquet", parquet()
        put(client, f"{place}/{name}", data)
        added = {
            "path": name,
            "partitionValues": {},
            "size": len(data),
            "modificationTime": now_ms(),
            "dataChange": True,
        }
        actions = [*(first if version == 0 else []), {"add": added}, {"commitInfo": {"timestamp": now_ms()}}]
        log = "".join(f"{json.dumps(action)}\n" for action in actions)
        put(client, f"{place}/_delta_log/{version:020}.json", log.encode())
    leave_orphans(client, place)


def field(name: str, kind: str) -> dict[str, Any]:
    """One column of a Delta schema."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def leave_orphans(client: Any, place: str) -> None:
    """What a job that failed before its commit leaves behind."""
    for number in range(ORPHANS):
        put(client, f"{place}/part-{number:05}-failed-job.parquet", parquet())


def parquet() -> bytes:
    """A small file of data."""
    file = io.BytesIO()
    pq.write_table(ROWS, file)
    return file.getvalue()


def put(client: Any, address: str, data: bytes) -> None:
    """Store one object."""
    place = urlsplit(address)
    client.put_object(Bucket=place.netloc, Key=place.path.lstrip("/"), Body=data)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main(*sys.argv[1:])
