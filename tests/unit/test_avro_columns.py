"""Columns of nested records: however deep a field lies, the fast reader and the slow one agree."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from lakesweep.formats import avro

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


@pytest.mark.parametrize("names", [[name] for name in PATHS] + [list(PATHS), list(reversed(PATHS))])
def test_a_field_is_found_however_deep_it_lies(names):
    data = avro.write(SCHEMA, [row(index) for index in range(ROWS)])
    table = avro.read_columns(data, {name: PATHS[name] for name in names})
    assert table.column_names == names
    for name in names:
        assert table.column(name).to_pylist() == expected(name)


def test_what_is_inside_a_record_that_may_be_null_is_left_to_the_slow_reader():
    flat, places = avro._laid_flat(SCHEMA)
    assert PATHS["number"] not in places
    container = avro.walk(data := avro.write(SCHEMA, [row(index) for index in range(ROWS)]))
    blocks = avro.inflate(data, container)
    assert avro.is_large(blocks)
    table = avro.decode_columns(blocks, flat, ROWS, {"text": places[PATHS["text"]]})
    assert table is not None
    assert table.column("text").to_pylist() == expected("text")


def test_rows_that_are_a_union_keep_the_byte_that_says_which():
    """Old writers put the record into a union with null: its rows begin with the branch."""
    union = ["null", SCHEMA]
    assert avro._laid_flat(union) == (union, {})
    out = bytearray(avro._header({"avro.schema": json.dumps(union).encode()}, bytes(16)))
    rows = b"".join(_encoded(union, row(index)) for index in range(ROWS))
    out += avro._long(ROWS) + avro._long(len(rows)) + rows + bytes(16)
    table = avro.read_columns(bytes(out), PATHS)
    for name in PATHS:
        assert table.column(name).to_pylist() == expected(name)


def test_a_record_that_is_named_again_later_is_still_read():
    """Laid flat its definition is gone, so the fast reader gives up and the slow one reads."""
    twice = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "again", "type": "deep"}]}
    data = avro.write(twice, [row(index) | {"again": {"text": f"again {index}"}} for index in range(ROWS)])
    table = avro.read_columns(data, {"text": PATHS["text"]})
    assert table.column("text").to_pylist() == expected("text")


def _encoded(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()
