"""Bytes of Delta files, made fast: commits, checkpoints of every kind, names of deletion vectors. No product code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_MAP = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _NAMES),
                    ("configuration", _MAP),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _NAMES),
                    ("writerFeatures", _NAMES),
                ]
            ),
        ),
        ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])),
    ]
)
_MAPS = ("partitionValues", "configuration")
_MOST = 1000
_written: dict[str, bytes] = {}


def lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Actions as a commit or a JSON checkpoint has them, one in a line."""
    return ("\n".join(_encode(action) for action in actions) + "\n").encode()


def parquet(actions: Sequence[Action]) -> bytes:
    """Actions as a checkpoint or a sidecar has them. Many stories begin alike."""
    what = repr(actions)
    found = _written.get(what)
    if found is None:
        if len(_written) >= _MOST:
            _written.clear()
        found = _written[what] = _parquet(actions)
    return found


def _parquet(actions: Sequence[Action]) -> bytes:
    columns = []
    for field in _SCHEMA:
        values = [_row(action.get(field.name)) for action in actions]
        columns.append(pa.array(values, field.type) if any(values) else pa.nulls(len(values), field.type))
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=_SCHEMA)
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False, store_schema=False)
    return sink.getvalue().to_pybytes()


def _row(body: Action | None) -> Action | None:
    """Maps are lists of pairs in Arrow."""
    if body is None:
        return None
    return {key: list(value.items()) if key in _MAPS else value for key, value in body.items()}


def vector_text(uuid: bytes) -> str:
    """How a log spells the file of a deletion vector: Z85 of its UUID."""
    text = ""
    for start in range(0, 16, 4):
        value = int.from_bytes(uuid[start : start + 4], "big")
        digits = [value // 85**power % 85 for power in (4, 3, 2, 1, 0)]
        text += "".join(_Z85[digit] for digit in digits)
    return text


def vector_file(uuid: bytes) -> str:
    """How storage spells the same."""
    return f"deletion_vector_{uuid_text(uuid)}.bin"


def uuid_text(raw: bytes) -> str:
    """Sixteen bytes as a UUID is written."""
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def protocol(features: Sequence[str]) -> Action:
    """The protocol that these writer features need."""
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    readers = [name for name in features if name in ("deletionVectors", "v2Checkpoint")]
    body: Action = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7, "writerFeatures": list(features)}
    return {**body, "readerFeatures": readers} if readers else body


def metadata(table_id: str, configuration: Mapping[str, str], columns: int = 0, partition: str = "k") -> Action:
    """A table with one partition column, and some others."""
    fields = [{"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}} for number in range(columns)]
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _encode({"type": "struct", "fields": fields}),
        "partitionColumns": [partition],
        "configuration": dict(configuration),
    }
