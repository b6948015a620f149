"""Manifests and manifest lists as bytes: schemas are pyiceberg's, containers are written by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
import fastavro
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.types import NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakesweep.formats import avro

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of a manifest."""

    path: str
    status: int = ADDED
    content: int = DATA
    file_format: str = "PARQUET"
    referenced_data_file: str | None = None
    content_offset: int | None = None
    columns_with_statistics: int = 0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One manifest with its bytes and its row of a manifest list."""

    path: str
    entries: tuple[Entry, ...]
    data: bytes
    snapshot_id: int = 0
    content: int = 0

    def row(self) -> dict[str, Any]:
        counts = {status: sum(entry.status == status for entry in self.entries) for status in range(3)}
        return {
            "manifest_path": self.path,
            "manifest_length": len(self.data),
            "partition_spec_id": 0,
            "content": self.content,
            "sequence_number": 1,
            "min_sequence_number": 1,
            "added_snapshot_id": self.snapshot_id,
            "added_files_count": counts[ADDED],
            "existing_files_count": counts[EXISTING],
            "deleted_files_count": counts[DELETED],
            "added_rows_count": counts[ADDED],
            "existing_rows_count": counts[EXISTING],
            "deleted_rows_count": counts[DELETED],
        }


def entry_schema(version: int = 2, partition_fields: Sequence[str] = ()) -> dict[str, Any]:
    """The Avro schema of a manifest."""
    partition = StructType(
        *(NestedField(1000 + index, name, StringType(), required=False) for index, name in enumerate(partition_fields))
    )
    schema = manifest_entry_schema_with_data_file(version, data_file_with_partition(partition, version))
    return AvroSchemaConversion().iceberg_to_avro(schema, schema_name="manifest_entry")


def list_schema(version: int = 2) -> dict[str, Any]:
    """The Avro schema of a manifest list."""
    return AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[version], schema_name="manifest_file")


def container(
    schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], *, codec: str = "deflate", rows_per_block: int = 0
) -> bytes:
    """An Avro container. `rows_per_block` forces small blocks, as pyiceberg writes them (one row each)."""
    if codec == "zstandard":
        return _zstandard(container(schema, records, codec="null", rows_per_block=rows_per_block))
    out = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    if not rows_per_block:
        fastavro.writer(out, parsed, records, codec=codec, sync_interval=64_000)
        return out.getvalue()
    writer = fastavro.write.Writer(out, parsed, codec=codec, sync_interval=1 << 30)
    for index, record in enumerate(records, 1):
        writer.write(record)
        if index % rows_per_block == 0:
            writer.dump()
    writer.flush()
    return out.getvalue()


def _zstandard(data: bytes) -> bytes:
    """fastavro writes no zstandard here, so an uncompressed container is packed block by block."""
    frame = avro.walk(data)
    header = data[: frame.body].replace(b"avro.codec\x08null", b"avro.codec\x12zstandard")
    packed = [(block.rows, bytes(cramjam.zstd.compress(data[block.start : block.end]))) for block in frame.blocks]
    return header + b"".join(_long(rows) + _long(len(body)) + body + frame.sync for rows, body in packed)


def _long(value: int) -> bytes:
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def entry_record(entry: Entry, version: int = 2, partition: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One manifest row as a record."""
    longs = [{"key": key, "value": key * 1000 + 7} for key in range(1, entry.columns_with_statistics + 1)]
    bounds = [{"key": key, "value": b"abcdefgh"} for key in range(1, entry.columns_with_statistics + 1)]
    data_file: dict[str, Any] = {
        "file_path": entry.path,
        "file_format": entry.file_format,
        "partition": dict(partition or {}),
        "record_count": 1,
        "file_size_in_bytes": 100,
        "column_sizes": longs,
        "value_counts": longs,
        "null_value_counts": longs,
        "nan_value_counts": longs,
        "lower_bounds": bounds,
        "upper_bounds": bounds,
        "split_offsets": [4],
    }
    if version == 1:
        data_file |= {"block_size_in_bytes": 1}
    else:
        data_file |= {"content": entry.content}
    if version >= 3:
        data_file |= {
            "referenced_data_file": entry.referenced_data_file,
            "content_offset": entry.content_offset,
            "content_size_in_bytes": None if entry.content_offset is None else 10,
        }
    return {"status": entry.status, "snapshot_id": 1, "data_file": data_file}


def manifest_bytes(
    entries: Sequence[Entry],
    *,
    version: int = 2,
    codec: str = "deflate",
    rows_per_block: int = 0,
    partition: Mapping[str, str] | None = None,
) -> bytes:
    """A manifest of these entries, all in one partition."""
    schema = entry_schema(version, tuple(partition or ()))
    records = [entry_record(entry, version, partition) for entry in entries]
    return container(schema, records, codec=codec, rows_per_block=rows_per_block)


def list_bytes(
    manifests: Sequence[Manifest], *, version: int = 2, codec: str = "deflate", rows_per_block: int = 0
) -> bytes:
    """A manifest list of these manifests."""
    rows = [manifest.row() for manifest in manifests]
    return container(list_schema(version), rows, codec=codec, rows_per_block=rows_per_block)
