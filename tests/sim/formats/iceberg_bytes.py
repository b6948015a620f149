"""The bytes of Iceberg's files: manifests, manifest lists and metadata.json, as real writers lay them out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.sim.formats.avro_bytes import NULL, file, header, long, small, some, text

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2


def _field(number: int, name: str, kind: Any, *, optional: bool = False) -> dict[str, Any]:
    if optional:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": number}
    return {"name": name, "type": kind, "field-id": number}


_PARTITION = {"type": "record", "name": "r102", "fields": []}
_DATA_FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", _PARTITION),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
    ],
}
_ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field(0, "status", "int"),
        _field(1, "snapshot_id", "long", optional=True),
        _field(3, "sequence_number", "long", optional=True),
        _field(4, "file_sequence_number", "long", optional=True),
        _field(2, "data_file", _DATA_FILE),
    ],
}
_MANIFEST_FILE = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
    ],
}
_MANIFEST_HEADERS = {
    (version, content): header(
        _ENTRY,
        schema='{"type":"struct","fields":[]}',
        **{"partition-spec": "[]", "partition-spec-id": "0", "format-version": str(version), "content": content},
    )
    for version in (1, 2, 3)
    for content in ("data", "deletes")
}
_LIST_HEADERS = {version: header(_MANIFEST_FILE, **{"format-version": str(version)}) for version in (1, 2, 3)}


class Entry(NamedTuple):
    """One line of a manifest."""

    status: int
    snapshot_id: int
    sequence: int
    content: int
    path: str
    size: int


class ListedManifest(NamedTuple):
    """One line of a manifest list."""

    path: str
    length: int
    content: int
    """0 data, 1 deletes."""
    sequence: int
    snapshot_id: int
    added: int
    existing: int
    deleted: int


def manifest(version: int, deletes: bool, entries: Sequence[Entry]) -> bytes:
    """A manifest file."""
    rows = []
    for one in entries:
        kind = "puffin" if one.path.endswith(".puffin") else "parquet"
        sequence = some(small(one.sequence))
        rows.append(
            small(one.status)
            + some(long(one.snapshot_id))
            + (NULL if one.status == ADDED else sequence)
            + (NULL if one.status == ADDED else sequence)
            + small(one.content)
            + text(one.path)
            + text(kind)
            + small(1)
            + small(one.size)
        )
    return file(_MANIFEST_HEADERS[version, "deletes" if deletes else "data"], rows)


def manifest_list(version: int, manifests: Sequence[ListedManifest]) -> bytes:
    """A manifest list."""
    rows = [
        text(one.path)
        + small(one.length)
        + small(0)
        + small(one.content)
        + small(one.sequence)
        + small(one.sequence)
        + long(one.snapshot_id)
        + small(one.added)
        + small(one.existing)
        + small(one.deleted)
        + small(one.added)
        + small(one.existing)
        + small(one.deleted)
        for one in manifests
    ]
    return file(_LIST_HEADERS[version], rows)


def snapshot_json(
    snapshot_id: int, parent: int | None, sequence: int, at_ms: int, manifest_list: str, summary: Mapping[str, str]
) -> str:
    """One snapshot of a metadata file."""
    document = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": at_ms,
        "manifest-list": manifest_list,
        "summary": dict(summary),
        "schema-id": 0,
    }
    if parent is not None:
        document["parent-snapshot-id"] = parent
    return json.dumps(document)


def metadata_json(document: Mapping[str, Any], snapshots: Sequence[str]) -> bytes:
    """A metadata file: everything but the snapshots, and those as they were made by `snapshot_json`."""
    return f'{json.dumps(document)[:-1]}, "snapshots": [{", ".join(snapshots)}]}}'.encode()
