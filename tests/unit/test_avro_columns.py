"""Columns of nested records: however deep a field lies, the fast reader and the slow one agree."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.builders.avro_columns import number, of, read

from lakesweep.formats import avro
from lakesweep.formats.avro_columns import compiled

ROWS = 2000
DEEP = {"type": "record", "name": "deep", "fields": [{"name": "text", "type": "string"}]}
MAYBE = {"type": "record", "name": "maybe", "fields": [{"name": "number", "type": "long"}]}
INNER = {
    "type": "record",
    "name": "inner",
    "fields": [
        {"name": "before", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "deep", "type": DEEP},
        {"name": "maybe", "type": ["null", MAYBE]},
        {"name": "after", "type": ["null", "string"]},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "first", "type": "int"}, {"name": "inner", "type": INNER}],
}
PATHS = {
    "first": ("first",),
    "text": ("inner", "deep", "text"),
    "number": ("inner", "maybe", "number"),
    "after": ("inner", "after"),
}


def row(index: int) -> dict[str, Any]:
    return {
        "first": index,
        "inner": {
            "before": [index, None],
            "deep": {"text": f"text {index}"},
            "maybe": {"number": index} if index % 3 else None,
            "after": None if index % 2 else f"after {index}",
        },
    }


def expected(name: str) -> list[Any]:
    def dig(value: Any, path: tuple[str, ...]) -> Any:
        return value if not path or value is None else dig(value[path[0]], path[1:])

    return [dig(row(index), PATHS[name]) for index in range(ROWS)]


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
@pytest.mark.parametrize("names", [[name] for name in PATHS] + [list(PATHS), list(reversed(PATHS))])
def test_a_field_is_found_however_deep_it_lies(names, codec):
    data = avro.write(SCHEMA, [row(index) for index in range(ROWS)], codec=codec)
    places = {name: PATHS[name] for name in names}
    assert avro.read_fast(data, avro.walk(data), compiled(SCHEMA, places)) is not None
    table = avro.read_columns(data, places)
    assert table.column_names == names
    for name in names:
        assert table.column(name).to_pylist() == expected(name)


def test_rows_that_are_a_union_keep_the_byte_that_says_which():
    """Old writers put the record into a union with null: its rows begin with the branch."""
    union = ["null", SCHEMA]
    out = bytearray(avro._header({"avro.schema": json.dumps(union).encode()}, bytes(16)))
    rows = b"".join(_encoded(union, row(index)) for index in range(ROWS))
    out += number(ROWS) + number(len(rows)) + rows + bytes(16)
    table = avro.read_columns(bytes(out), PATHS)
    for name in PATHS:
        assert table.column(name).to_pylist() == expected(name)


def test_a_record_that_is_named_again_later_is_still_read():
    """Names are not followed, so the slow reader reads."""
    twice = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "again", "type": "deep"}]}
    assert compiled(twice, {"text": PATHS["text"]}) is None
    data = avro.write(twice, [row(index) | {"again": {"text": f"again {index}"}} for index in range(ROWS)])
    table = avro.read_columns(data, {"text": PATHS["text"]})
    assert table.column("text").to_pylist() == expected("text")


ITSELF = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "f0", "type": "long"}, {"name": "n", "type": ["null", "row"]}],
}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (ITSELF, "f0"),
        (of("boolean"), "f0"),
        (of("double"), "f0"),
        (of("null"), "f0"),
        (of(DEEP), "f0"),
        (of({"type": "enum", "name": "e", "symbols": ["A"]}), "f0"),
        (of({"type": "fixed", "name": "x", "size": 3}), "f0"),
        (of({"type": "int", "logicalType": "date"}), "f0"),
        (of({"type": "string", "logicalType": "uuid"}), "f0"),
        (of(["null", "int", "long"]), "f0"),
        (of(["null"]), "f0"),
        (of({"type": "array", "items": "long"}), "f0"),
        (of("long"), "elsewhere"),
        (of("long", {"type": "array", "items": "null"}), "f0"),
        (of("long", {"type": "array", "items": {"type": "record", "name": "empty", "fields": []}}), "f0"),
        (of("long", {"type": "fixed", "name": "x", "size": 0}), "f0"),
        (of("long", {"type": "fixed", "name": "x", "size": 2**40}), "f0"),
        (of("long", []), "f0"),
        (of("long", "unheard-of"), "f0"),
        ({**of("long"), "fields": [*of("long")["fields"]] * 2}, "f0"),
        ("long", "f0"),
    ],
)
def test_what_the_two_readers_could_see_differently_is_not_compiled(schema, place):
    assert compiled(of("long", "string"), {"value": ("f0",)}) is not None
    assert compiled(schema, {"value": (place,)}) is None


def test_a_type_in_more_types_than_anyone_needs_is_not_compiled():
    deep: Any = "long"
    for _ in range(20):
        deep = {"type": "array", "items": deep}
    assert compiled(of("long", deep), {"value": ("f0",)}) is not None
    for _ in range(20):
        deep = {"type": "array", "items": deep}
    assert compiled(of("long", deep), {"value": ("f0",)}) is None


@pytest.mark.parametrize(
    ("schema", "block", "rows"),
    [
        (of("long"), b"", 1),
        (of("long"), b"\x00", 2),
        (of("long"), b"\x00\x00", 1),
        (of("long"), b"\x00", 2**62),
        (of("long"), b"\x80", 1),
        (of("long"), b"\xff" * 9 + b"\x02", 1),
        (of("long"), b"\xff" * 10 + b"\x01", 1),
        (of("int"), number(2**31), 1),
        (of("int"), number(-(2**31) - 1), 1),
        (of("string"), number(3) + b"ab", 1),
        (of("string"), number(2**30) + b"ab", 1),
        (of("string"), number(-1) + b"ab", 1),
        (of("string"), number(2) + b"\xff\xff", 1),
        (of(["null", "long"]), number(2) + number(1), 1),
        (of(["null", "long"]), number(-1) + number(1), 1),
        (of("long", "bytes"), number(7) + number(3) + b"ab", 1),
        (of("long", "bytes"), number(7) + number(-2) + b"ab", 1),
        (of("long", "bytes", "long"), number(7) + number(-1), 1),
        (of("long", {"type": "array", "items": "bytes"}, "long"), number(7) + number(1) + number(-1) + number(0), 1),
        (of("long", "boolean"), number(7) + b"\x02", 1),
        (of("long", "boolean"), number(7), 1),
        (of("long", "double"), number(7) + bytes(7), 1),
        (of("long", {"type": "enum", "name": "e", "symbols": ["A"]}), number(7) + number(1), 1),
        (of("long", {"type": "enum", "name": "e", "symbols": ["A"]}), number(7) + number(-1), 1),
        (of("long", ["null", "int"]), number(7) + number(2), 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(1), 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(2**62) + bytes(9), 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(-(2**63)) + number(0) * 9, 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(-(2**63)) + number(0) * 2, 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(-1) + number(2) + number(0) * 2, 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(-1) + number(-1) + number(0) * 2, 1),
        (of("long", {"type": "array", "items": "int"}), number(7) + number(-1) + number(9) + number(0) * 2, 1),
        (of({"type": "array", "items": "string"}), number(1) + number(2) + b"\xff\xff" + number(0), 1),
    ],
)
def test_rows_that_are_out_of_order_are_refused(schema, block, rows):
    assert read(schema, block, rows) is None


def test_a_pair_with_a_boolean_is_not_taken_for_two_numbers():
    pair = {**PAIR, "fields": [*PAIR["fields"], {"name": "v", "type": "boolean"}]}
    schema = of({"type": "array", "items": pair}, "long")
    for value, expected in ((1, [77]), (2, None)):
        block = number(1) + number(5) + bytes([value]) + number(0) + number(77)
        assert read(schema, block, 1, ("f1",)) == expected


PAIR = {"type": "record", "name": "pair", "fields": [{"name": "k", "type": "int"}]}


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ("long", number(300)),
        ("bytes", number(2) + b"ab"),
        ("boolean", b"\x01"),
        ("float", b"abcd"),
        (["null", "long"], number(1) + number(5)),
    ],
)
def test_statistics_are_passed_over_whatever_their_values_are(value, body):
    """Pairs of numbers, or of a number and bytes, have a loop of their own."""
    pair = {**PAIR, "fields": [*PAIR["fields"], {"name": "v", "type": value}]}
    schema = of({"type": "array", "items": pair}, "long")
    sized = number(-1) + number(1 + len(body)) + number(1) + body
    whole = number(2) + (number(1) + body) * 2 + sized + number(0) + number(77)
    assert read(schema, whole * 3, 3, ("f1",)) == [77, 77, 77]
    for end in range(len(whole)):
        assert read(schema, whole[:end], 1, ("f1",)) is None


def test_times_are_read_as_times_where_python_has_them():
    schema = of({"type": "long", "logicalType": "timestamp-millis"})
    program = compiled(schema, {"value": ("f0",)})
    assert program is not None
    found = program.read([(number(1_700_000_000_123), 1)])
    assert found is not None
    assert found["value"].type == pa.timestamp("ms", "UTC")
    assert found["value"].cast(pa.int64()).to_pylist() == [1_700_000_000_123]
    for last, beyond in ((253_402_300_799_999, 1), (-62_135_596_800_000, -1)):
        assert read(schema, number(last), 1) is not None
        assert read(schema, number(last + beyond), 1) is None


def test_columns_grow_over_many_blocks_and_nulls():
    schema = of(["null", "string"], ["null", {"type": "array", "items": ["null", "string"]}], ["null", "int"])
    full = number(1) + number(3) + b"abc" + number(1) + number(2) + number(1) + number(1) + b"x" + number(0) + number(0)
    full += number(1) + number(5)
    block = (full + number(0) * 3) * 50
    places = {"text": ("f0",), "texts": ("f1",), "count": ("f2",)}
    program = compiled(schema, places)
    assert program is not None
    found = program.read([(block, 100)] * 70)
    assert found is not None
    assert found["text"].to_pylist() == ["abc", None] * 3500
    assert found["texts"].to_pylist() == [["x", None], None] * 3500
    assert found["count"].to_pylist() == [5, None] * 3500


def _encoded(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()
