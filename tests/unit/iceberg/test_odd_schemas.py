"""Manifests whose schema no known writer writes: read as they are meant, or refused, and never read otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakesweep.formats import avro
from lakesweep.formats.iceberg import columns, decode
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource

n = avro._long
ABC = n(3) + b"abc"
ROW = {"status": [1], "path": ["abc"]}


def record(*fields: dict[str, Any], name: str = "entry") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(type_: Any, id_: Any = None, name: str = "f") -> dict[str, Any]:
    given = {"name": f"{name}{id_ if isinstance(id_, int) else ''}", "type": type_}
    return given if id_ is None else given | {"field-id": id_}


def manifest(schema: Any, *blocks: tuple[int, bytes]) -> bytes:
    framed = (n(rows) + n(len(body)) + body + bytes(16) for rows, body in blocks)
    return avro._header({"avro.schema": json.dumps(schema).encode()}, bytes(16)) + b"".join(framed)


STATUS, PATH = field("int", 0), field("string", 100)
FILE = record(PATH, name="file")
ONE = record(field("int"), name="one")


@pytest.mark.parametrize(
    ("schema", "block", "is_fast"),
    [
        (record(STATUS, PATH), n(1) + ABC, True),
        (record(STATUS, field(["null", FILE])), n(1) + n(1) + ABC, True),
        (record(STATUS, field([FILE, "null"])), n(1) + n(0) + ABC, True),
        (record(field(["int", "null"], 0), field(["string", "null"], 100)), n(0) + n(1) + n(0) + ABC, True),
        (record(field(["null", "int", "long"], 0), PATH), n(2) + n(1) + ABC, False),
        (record(STATUS, field(["int", FILE])), n(1) + n(1) + ABC, False),
        (record(field("long", 0), PATH), n(1) + ABC, True),
        (record(STATUS, field("bytes", 100)), n(1) + ABC, True),
        (record(STATUS, field({"type": "string", "logicalType": "uuid"}, 100)), n(1) + ABC, True),
        (record(STATUS | {"aliases": ["f100"], "default": 2}, PATH | {"aliases": ["f0"]}), n(1) + ABC, True),
        (record(STATUS, field({"type": "enum", "name": "e", "symbols": ["x", "abc"]}, 100)), n(1) + n(1), False),
        # An id inside of a list or of a map is another one's.
        (record(STATUS, field({"type": "array", "items": FILE}), PATH), n(1) + n(1) + n(1) + b"x" + n(0) + ABC, True),
        (record(STATUS, field({"type": "map", "values": FILE}), PATH), n(1) + n(1) + n(0) + n(0) + n(0) + ABC, True),
        # A type that is used again by its name.
        (record(STATUS, field(ONE, name="a"), field("one", name="b"), PATH), n(1) + n(7) + n(7) + ABC, False),
        (record(STATUS, field(FILE), field({"type": "array", "items": "file"}, name="l")), n(1) + ABC + n(0), False),
        # Without any bytes.
        (record(STATUS, field(["null", record(name="none")]), PATH), n(1) + n(1) + ABC, True),
    ],
)
def test_an_odd_schema_is_read_alike_by_both_readers(schema, block, is_fast):
    data = manifest(schema, (1, block))
    plain = columns.Plain(schema, decode._ENTRY_FIELDS)
    assert columns.read(data, decode._ENTRY_FIELDS).to_pydict() == ROW
    slow = columns.read_slowly([block], 1, plain)
    assert {name: column.to_pylist() for name, column in slow.items()} == ROW
    assert (avro.read_fast(data, avro.walk(data), plain.program) is not None) == is_fast


@pytest.mark.parametrize(
    ("schema", "block", "why"),
    [
        (record(STATUS, field("string", 100, "a"), field("string", 100, "b")), n(1) + ABC + ABC, "two fields have"),
        (record(STATUS, field([FILE, record(PATH, name="other")])), n(1) + n(0) + ABC, "two fields have the id 100"),
        (record(STATUS, field({"type": "array", "items": FILE})), n(1) + n(0), "no field with id 100"),
        (record(field("int", False), PATH), n(1) + ABC, "no field with id 0"),
        (record(field("int", [0]), PATH), n(1) + ABC, "no field with id 0"),
        (record(field("null", 0), PATH), ABC, "1 rows have no status"),
        (record(STATUS, field(["null", FILE])), n(1) + n(0), "1 rows have no path"),
        (record(STATUS, field(["int", FILE])), n(1) + n(0) + n(7), "an unexpected value where path should be"),
        (record(STATUS, field("long", 100)), n(1) + n(7), "its path is of type int64, not string"),
        (record(field("string", 0), PATH), n(1) + b"1" + ABC, "its status is of type string, not int32"),
        (record(field("boolean", 0), PATH), b"\x01" + ABC, "got bool"),
        (record(STATUS, field(FILE, 100)), n(1) + ABC, "two fields have the id 100"),
        (record(STATUS, field(ONE, 100)), n(1) + n(7), "got a 'dict' object"),
        (record(field("long", 0), PATH), n(2**31) + ABC, "2147483648"),
        (record(STATUS, PATH), n(2**31) + ABC, "2147483648"),
        (record(STATUS, field("bytes", 100)), n(1) + n(1) + b"\xff", "UTF8"),
        (record(STATUS, field(ONE, name="a"), field(ONE, name="b"), PATH), n(1) + n(7) * 2 + ABC, "redefined"),
        # A few bytes that stand for as many items as they like.
        (
            record(STATUS, field({"type": "array", "items": record(name="none")}), PATH),
            n(1) + n(9) + n(0) + ABC,
            "take no bytes",
        ),
        ({"type": "record", "name": "r", "fields": [7]}, b"", "malformed"),
        ({"type": "record", "name": "r", "fields": 7}, b"", "malformed"),
    ],
)
def test_a_schema_that_could_be_read_in_two_ways_is_refused(schema, block, why):
    data = manifest(schema, (1, block))
    source = ReferenceSource(
        location=Location.parse("s3://lake/m.avro"),
        format=FormatName.ICEBERG,
        kind=decode.MANIFEST,
        retained=True,
        size_bytes=len(data),
        entries=1,
    )
    with pytest.raises(Unreadable, match=why):
        decode.decode(source, data)


def test_the_same_schema_is_read_anew_for_other_columns():
    data = manifest(record(STATUS, PATH), (1, n(1) + ABC))
    status, path = ({id_: decode._ENTRY_FIELDS[id_]} for id_ in (0, 100))
    for _ in range(2):
        assert columns.read(data, status).to_pydict() == {"status": [1]}
        assert columns.read(data, path).to_pydict() == {"path": ["abc"]}
        assert columns.read(data, path | status).to_pydict() == {"path": ["abc"], "status": [1]}


@pytest.mark.parametrize("blocks", [[], [(0, b"")], [(0, b""), (0, b"")]])
def test_no_rows_are_no_rows(blocks):
    found = columns.read(manifest(record(STATUS, PATH), *blocks), decode._ENTRY_FIELDS)
    assert found.to_pydict() == {"status": [], "path": []}


def test_blocks_of_one_row_and_of_none_are_read_like_any():
    blocks = [(1, n(1) + ABC), (0, b""), (2, (n(2) + ABC) * 2), (1, n(0) + ABC)]
    found = columns.read(manifest(record(STATUS, PATH), *blocks), decode._ENTRY_FIELDS)
    assert found.to_pydict() == {"status": [1, 2, 2, 0], "path": ["abc"] * 4}


@pytest.mark.parametrize("schema", [record(STATUS, PATH), record(field("null", 0), field("null", 100)), record()])
def test_rows_without_bytes_are_refused_however_many(schema):
    for rows in (1, 2**62):
        with pytest.raises((avro.ContainerError, columns.FieldMissing)):
            columns.read(manifest(schema, (rows, b"")), decode._ENTRY_FIELDS)
