"""Bytes of Paimon's metadata in the shape that Java 1.x writes, made fast: an Avro writer for three schemas only.

A header is made once for each schema, and records are put together by hand. Knows no product code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

_RECORD = "org.apache.paimon.avro.generated.record"
_SYNC = b"lakesweep-sim-16"
_NO_ROW = bytes(12)
"""A row without columns: its arity, and eight bytes of null bits."""


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _stats(name: str) -> dict[str, Any]:
    counts = {"type": "array", "items": ["null", "long"]}
    fields = [{"name": one, "type": "bytes"} for one in ("_MIN_VALUES", "_MAX_VALUES")]
    return {"type": "record", "name": name, "fields": [*fields, _optional("_NULL_COUNTS", counts)]}


def _fields(**kinds: Any) -> list[dict[str, Any]]:
    return [{"name": f"_{name}", "type": kind} for name, kind in kinds.items()]


_FILE = {
    "type": "record",
    "name": f"{_RECORD}__FILE",
    "fields": [
        *_fields(FILE_NAME="string", FILE_SIZE="long", ROW_COUNT="long", MIN_KEY="bytes", MAX_KEY="bytes"),
        {"name": "_KEY_STATS", "type": _stats(f"{_RECORD}__FILE__KEY_STATS")},
        {"name": "_VALUE_STATS", "type": _stats(f"{_RECORD}__FILE__VALUE_STATS")},
        *_fields(MIN_SEQUENCE_NUMBER="long", MAX_SEQUENCE_NUMBER="long", SCHEMA_ID="long", LEVEL="int"),
        {"name": "_EXTRA_FILES", "type": {"type": "array", "items": "string"}},
        _optional("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        _optional("_DELETE_ROW_COUNT", "long"),
        _optional("_EMBEDDED_FILE_INDEX", "bytes"),
        _optional("_FILE_SOURCE", "int"),
        _optional("_VALUE_STATS_COLS", {"type": "array", "items": "string"}),
        _optional("_EXTERNAL_PATH", "string"),
    ],
}
_MANIFEST = [
    *_fields(VERSION="int", KIND="int", PARTITION="bytes", BUCKET="int", TOTAL_BUCKETS="int"),
    {"name": "_FILE", "type": _FILE},
]
_LIST = [
    *_fields(VERSION="int", FILE_NAME="string", FILE_SIZE="long", NUM_ADDED_FILES="long", NUM_DELETED_FILES="long"),
    {"name": "_PARTITION_STATS", "type": _stats(f"{_RECORD}__PARTITION_STATS")},
    {"name": "_SCHEMA_ID", "type": "long"},
    *[_optional(name, "int") for name in ("_MIN_BUCKET", "_MAX_BUCKET", "_MIN_LEVEL", "_MAX_LEVEL")],
]
_RANGE = {
    "type": "record",
    "name": f"{_RECORD}__DELETIONS_VECTORS_RANGES",
    "fields": [
        *({"name": name, "type": kind} for name, kind in (("f0", "string"), ("f1", "int"), ("f2", "int"))),
        _optional("_CARDINALITY", "long"),
    ],
}
_INDEX = [
    *_fields(VERSION="int", KIND="int", PARTITION="bytes", BUCKET="int", INDEX_TYPE="string", FILE_NAME="string"),
    *_fields(FILE_SIZE="long", ROW_COUNT="long"),
    _optional("_DELETIONS_VECTORS_RANGES", {"type": "array", "items": _RANGE}),
    _optional("_EXTERNAL_PATH", "string"),
]


@cache
def number(value: int) -> bytes:
    """A zig-zag varint."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(data: bytes) -> bytes:
    """Bytes or a text, behind their length."""
    return number(len(data)) + data


def text(value: str) -> bytes:
    return sized(value.encode())


_NULL, _SOME = number(0), number(1)


def _texts(values: Sequence[str]) -> bytes:
    if not values:
        return b"\0"
    return number(len(values)) + b"".join(map(text, values)) + b"\0"


def _header(fields: list[dict[str, Any]]) -> bytes:
    schema = json.dumps({"type": "record", "name": _RECORD, "fields": fields}).encode()
    described = number(2) + text("avro.schema") + sized(schema) + text("avro.codec") + text("null") + b"\0"
    return b"Obj\x01" + described + _SYNC


_HEADERS = {kind: _header(fields) for kind, fields in (("manifest", _MANIFEST), ("list", _LIST), ("index", _INDEX))}


def container(kind: str, records: Sequence[bytes]) -> bytes:
    """An Avro file of these records: a `manifest`, a `list` or an `index` manifest."""
    if not records:
        return _HEADERS[kind]
    body = b"".join(records)
    return b"".join((_HEADERS[kind], number(len(records)), number(len(body)), body, _SYNC))


@cache
def row(value: str | None) -> bytes:
    """A row with one column of text, as partitions are written."""
    if value is None:
        return b"\0\0\0\x01\0\x01" + bytes(6) + bytes(8)
    data = value.encode()
    head = b"\0\0\0\x01" + bytes(8)
    if len(data) <= 7:
        return head + data.ljust(7, b"\0") + bytes((0x80 | len(data),))
    return head + len(data).to_bytes(4, "little") + b"\x10\0\0\0" + data + bytes(-len(data) % 8)


_NO_STATS = sized(_NO_ROW) * 2 + _SOME + b"\0"
_BEHIND_KEYS = sized(b"") * 2 + _NO_STATS * 2 + number(0) * 3
"""Empty keys, no statistics, sequence numbers and schema 0."""


def entry(
    kind: int,
    partition: str | None,
    name: str,
    *,
    size: int,
    rows: int,
    level: int,
    extras: Sequence[str] = (),
    created_ms: int,
    source: int,
    external: str | None,
) -> bytes:
    """A record of a manifest: 0 adds a file, 1 deletes one."""
    return b"".join(
        (
            number(2) + number(kind) + sized(row(partition)) + number(0) + number(1),
            text(name) + number(size) + number(rows) + _BEHIND_KEYS + number(level) + _texts(extras),
            _SOME + number(created_ms) + _SOME + number(0) + _NULL + _SOME + number(source) + _NULL,
            _NULL if external is None else _SOME + text(external),
        )
    )


def listed(name: str, size: int, added: int, deleted: int, partitions: Iterable[str | None]) -> bytes:
    """A record of a manifest list."""
    values = list(partitions)
    known = sorted(value for value in values if value is not None)
    least, most = (row(known[0]), row(known[-1])) if known else (row(None), row(None))
    nulls = _SOME + number(1) + _SOME + number(values.count(None)) + b"\0"
    return b"".join(
        (
            number(2) + text(name) + number(size) + number(added) + number(deleted),
            sized(least) + sized(most) + nulls + number(0),
            (_SOME + number(0)) * 4,
        )
    )


def indexed(kind: str, name: str, partition: str | None, ranges: Sequence[str] = ()) -> bytes:
    """A record of an index manifest: of a HASH index, or of DELETION_VECTORS for these data files."""
    vectors = _NULL
    if ranges:
        each = (text(one) + number(1) + number(20) + _SOME + number(1) for one in ranges)
        vectors = _SOME + number(len(ranges)) + b"".join(each) + b"\0"
    start = number(1) + number(0) + sized(row(partition)) + number(0)
    return start + text(kind) + text(name) + number(5) + number(1) + vectors + _NULL


def document(fields: dict[str, Any]) -> bytes:
    """A JSON file: a snapshot, tag, changelog, schema or consumer."""
    return json.dumps(fields).encode()
