"""Bytes that are out of order in a single place are refused, though all that follows may seem to be in order."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.avro_columns import number, of, read


def pairs(value: Any) -> dict[str, Any]:
    return {"type": "array", "items": {**of("int", value), "name": "pair"}}


INTS = {"type": "array", "items": "int"}
TOO_WIDE = b"\xff" * 9 + b"\x02"


@pytest.mark.parametrize(
    ("type_", "before", "value", "after"),
    [
        ("int", b"", number(5), b""),
        ("bytes", b"", number(0), b""),
        (["null", "int"], b"", number(0), b""),
        (["null", "int"], number(1), number(5), b""),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, b"", number(0), b""),
        (INTS, b"", number(1), number(5) + number(0)),
        (INTS, number(-1), number(1), number(5) + number(0)),
        (INTS, number(1), number(5), number(0)),
        (INTS, number(1) + number(5), number(0), b""),
        ({"type": "map", "values": "int"}, number(1), number(0), number(5) + number(0)),
        (pairs("int"), number(1), number(5), number(6) + number(0)),
        (pairs("int"), number(1) + number(5), number(6), number(0)),
        (pairs("bytes"), number(1) + number(5), number(0), number(0)),
    ],
)
def test_a_number_of_more_than_64_bits_is_refused_wherever_it_is_read(type_, before, value, after):
    schema = of("long", type_)
    assert read(schema, number(7) + before + value + after, 1) == [7]
    assert read(schema, number(7) + before + TOO_WIDE + after, 1) is None


@pytest.mark.parametrize(
    ("type_", "block"),
    [
        (pairs("bytes"), number(1) + number(5) + number(-1) + number(2) + number(5) + number(0) + number(0)),
        (pairs("bytes"), number(1) + number(1) + number(-1) + number(0) + number(0)),
        ({"type": "map", "values": "int"}, number(1) + number(-1) + number(2) + number(5) + number(0) + number(0)),
        ({"type": "array", "items": "bytes"}, number(1) + number(-1) + number(0)),
    ],
)
def test_a_negative_length_is_refused(type_, block):
    """Passed over, or read again as the count of another block."""
    assert read(of("long", type_), number(7) + block, 1) is None


def test_a_list_is_taken_whole_or_not_at_all():
    schema = of({"type": "array", "items": "string"}, "long")
    assert read(schema, number(1) + number(1) + b"x" + number(0) + number(5), 1) == [["x"]]
    for damaged in (number(-1), number(9), TOO_WIDE):
        assert read(schema, number(1) + damaged + number(5), 1) is None


@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("type_", ["int", "boolean", "double", "bytes", {"type": "fixed", "name": "x", "size": 1}])
def test_no_count_keeps_the_reader_longer_than_there_are_bytes(type_):
    for schema in (of("long", {"type": "array", "items": type_}), of("long", pairs(type_))):
        assert read(schema, number(7) + number(2**62) + bytes(9), 1) is None


@pytest.mark.parametrize(
    ("items", "item"),
    [
        ("int", number(5)),
        ({**of("int", "int", "int"), "name": "item"}, number(5) * 3),
        ({**of("int", "bytes", "int"), "name": "item"}, number(5) + number(1) + b"x" + number(5)),
    ],
)
def test_items_that_only_begin_like_pairs_are_not_taken_for_pairs(items, item):
    schema = of({"type": "array", "items": items}, "int", "long")
    assert read(schema, number(1) + item + number(0) + number(5) + number(77), 1, ("f2",)) == [77]
