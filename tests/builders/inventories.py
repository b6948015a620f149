"""Ready file lists as S3 Inventory and others write them, put into buckets in memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep.model.location import Location
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.storage.memory import Held, bucket

CSV_COLUMNS = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag", "StorageClass")
VERSION_COLUMNS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag")
PARQUET_SCHEMA = (
    "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8); optional int64 size; "
    "optional int64 last_modified_date (TIMESTAMP_MILLIS); optional binary e_tag (UTF8); }"
)
HOME = "s3://inventory/lake/b/daily"

Row = Mapping[str, Any]
"""A row of a listing: path, size_bytes, modified_at, etag; and, with versions, is_latest and is_delete_marker."""


def put(address: str, data: bytes, modified_at: datetime | None = None) -> str:
    place = Location.parse(address)
    bucket(place.authority).objects[place.path] = Held(data=data, modified_at=modified_at or datetime.now(UTC))
    return address


def rows_of_bucket(name: str) -> list[Row]:
    """Everything that a bucket in memory holds now."""
    return [
        {"path": f"s3://{name}/{key}", "size_bytes": len(held.data), "modified_at": held.modified_at, "etag": held.etag}
        for key, held in sorted(bucket(name).objects.items())
    ]


def csv_file(rows: Iterable[Row], columns: Iterable[str] = CSV_COLUMNS) -> bytes:
    return gzip.compress("".join(_csv_line(row, columns) for row in rows).encode())


def parquet_file(rows: Iterable[Row]) -> bytes:
    found = list(rows)
    table = pa.table(
        {
            "bucket": pa.array([Location.parse(row["path"]).authority for row in found], pa.string()),
            "key": pa.array([Location.parse(row["path"]).path for row in found], pa.string()),
            "size": pa.array([row["size_bytes"] for row in found], pa.int64()),
            "last_modified_date": pa.array([row["modified_at"] for row in found], pa.timestamp("ms", tz="UTC")),
            "e_tag": pa.array([row["etag"] for row in found], pa.string()),
        }
    )
    return written(table)


def plain_file(rows: Iterable[Row]) -> bytes:
    """Columns path, size, last_modified."""
    table = pa.Table.from_pylist([{key: row[key] for key in LISTING_SCHEMA.names} for row in rows], LISTING_SCHEMA)
    return written(
        table.select(["path", "size_bytes", "modified_at"]).rename_columns(["path", "size", "last_modified"])
    )


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def s3_inventory(
    files: Iterable[bytes],
    created_at: datetime,
    *,
    kind: str = "CSV",
    schema: str | None = None,
    home: str = HOME,
    source_bucket: str = "b",
    checksum: bool = True,
    store: Callable[[str, bytes], object] = put,
) -> str:
    """Deliver an inventory below `home`. Gives the address of its manifest."""
    folder, top = f"{home}/{created_at:%Y-%m-%dT%H-%MZ}", Location.parse(home)
    entries = []
    for number, data in enumerate(files):
        key = f"{top.path}/data/{created_at:%Y%m%d%H%M}-{number}.{'csv.gz' if kind == 'CSV' else 'parquet'}"
        store(f"s3://{top.authority}/{key}", data)
        entries.append({"key": key, "size": len(data), "MD5checksum": _md5(data)})
    manifest = {
        "sourceBucket": source_bucket,
        "destinationBucket": f"arn:aws:s3:::{top.authority}",
        "version": "2016-11-30",
        "creationTimestamp": str(round(created_at.timestamp() * 1000)),
        "fileFormat": kind,
        "fileSchema": schema or (", ".join(CSV_COLUMNS) if kind == "CSV" else PARQUET_SCHEMA),
        "files": entries,
    }
    data = json.dumps(manifest).encode()
    if checksum:
        store(f"{folder}/manifest.checksum", _md5(data).encode())
    store(f"{folder}/manifest.json", data)
    return f"{folder}/manifest.json"


def _csv_line(row: Row, columns: Iterable[str]) -> str:
    place = Location.parse(row["path"])
    modified: datetime = row["modified_at"]
    values = {
        "Bucket": place.authority,
        "Key": quote_plus(place.path, safe="/"),
        "Size": "" if row["size_bytes"] is None else str(row["size_bytes"]),
        "LastModifiedDate": modified.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "ETag": row["etag"] or "",
        "StorageClass": "STANDARD",
        "VersionId": "v",
        "IsLatest": str(row.get("is_latest", True)).lower(),
        "IsDeleteMarker": str(row.get("is_delete_marker", False)).lower(),
    }
    return ",".join(f'"{values[column]}"' for column in columns) + "\n"


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
