"""The shared Avro reader: frames, codecs, and that nothing is ever read short or for ever."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from lakesweep.formats import avro
from lakesweep.formats import avro_bytes as _avro

SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "text", "type": "string"}]}},
    ],
}
WANTED = {"number": ["number"], "text": ["inner", "text"], "absent": ["nowhere"]}


def rows(count: int) -> list[dict]:
    return [{"number": index, "inner": {"text": f"t{index}"}} for index in range(count)]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
@pytest.mark.parametrize("count", [0, 1, 39, 40, 5000])
def test_what_is_written_is_read_back(codec, count):
    data = avro.write(SCHEMA, rows(count), codec=codec)
    assert avro.read_records(data) == rows(count)
    table = avro.read_columns(data, WANTED)
    assert table.column("number").to_pylist() == list(range(count))
    assert table.column("text").to_pylist() == [f"t{index}" for index in range(count)]
    assert table.column("absent").null_count == count


@pytest.mark.parametrize("count", [10, 100])
@pytest.mark.parametrize("claimed", [-1, 1])
def test_a_block_that_claims_another_number_of_rows_is_damage(count, claimed):
    data = avro.write(SCHEMA, rows(count), codec="null")
    frame = avro.walk(data)
    end = frame.blocks[0].start
    assert len(frame.blocks) == 1
    size = avro._long(frame.blocks[0].end - end)
    forged = data[: frame.body] + avro._long(count + claimed) + size + data[end:]
    assert avro.walk(forged).rows == count + claimed
    with pytest.raises(avro.ContainerError):
        avro.read_records(forged)
    with pytest.raises(avro.ContainerError):
        avro.read_columns(forged, WANTED)


def test_an_unknown_codec_is_damage():
    data = avro.write(SCHEMA, rows(2), codec="deflate").replace(b"deflate", b"inflate")
    with pytest.raises(avro.ContainerError, match="inflate"):
        avro.read_records(data)


@settings(max_examples=examples(80, soak=2000), deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_the_varint(value):
    packed = avro._long(value)
    assert _avro.read_long(packed, 0) == (value, len(packed))
    assert _avro.read_long(b"x" + packed + b"x", 1) == (value, len(packed) + 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off in the middle of a number"),
        (b"\x80", "cut off in the middle of a number"),
        (b"\xff" * 9, "cut off in the middle of a number"),
        (b"\xff" * 9 + b"\x02", "a number is too long"),
        (b"\xff" * 9 + b"\x80", "a number is too long"),
        (b"\xff" * 10 + b"\x01", "a number is too long"),
    ],
)
def test_a_number_of_more_than_64_bits_or_without_an_end_is_damage(data, why):
    with pytest.raises(avro.ContainerError, match=why):
        _avro.read_long(data, 0)


@pytest.mark.parametrize("position", [-(2**40), -1, 4, 2**40])
def test_no_number_is_read_from_outside_of_the_data(position):
    data = avro._long(1) + avro._long(2) + avro._long(3)
    if position < 0:
        assert _avro.read_long(data, position) == (1, 1)
    else:
        with pytest.raises(avro.ContainerError, match="cut off"):
            _avro.read_long(data, position)


SYNC = bytes(range(16))


@pytest.mark.parametrize(
    "blocks",
    [
        avro._long(1) + avro._long(3) + b"abc" + SYNC[:-1],
        avro._long(1) + avro._long(3) + b"abc" + bytes(16),
        avro._long(1) + avro._long(4) + b"abc" + SYNC,
        avro._long(1) + avro._long(2) + b"abc" + SYNC,
        avro._long(1) + avro._long(2**63 - 1) + b"abc" + SYNC,
        avro._long(1) + avro._long(-(2**63)) + b"abc" + SYNC,
        avro._long(1) + avro._long(-3) + b"abc" + SYNC,
        avro._long(-1) + avro._long(3) + b"abc" + SYNC,
        avro._long(1) + avro._long(3) + b"abc" + SYNC + avro._long(1) + avro._long(3) + b"abc" + SYNC[:-1] + b"x",
    ],
)
def test_a_block_that_is_not_whole_is_damage(blocks):
    header = avro._header({"avro.schema": b'"null"'}, SYNC)
    assert [block.rows for block in avro.walk(header + avro._long(1) + avro._long(3) + b"abc" + SYNC).blocks] == [1]
    with pytest.raises(avro.ContainerError, match="is cut off or damaged"):
        avro.walk(header + blocks)


def test_blocks_are_found_to_the_byte():
    header = avro._header({"avro.schema": b'"null"'}, SYNC)
    parts = [(7, b""), (0, b"x"), (2**62, bytes(300))]
    data = header + b"".join(avro._long(rows) + avro._long(len(body)) + body + SYNC for rows, body in parts)
    assert [(block.rows, data[block.start : block.end]) for block in avro.walk(data).blocks] == parts
    for position in (-1, len(data) + 1):
        with pytest.raises(avro.ContainerError):
            _avro.step(data, position, SYNC)
    with pytest.raises(avro.ContainerError):
        _avro.step(data, len(header), SYNC[:-1])


def test_no_reader_changes_the_schema_that_it_shares():
    data = avro.write(SCHEMA, rows(3))
    before = json.dumps(avro.walk(data).schema)
    avro.read_records(data)
    avro.read_columns(data, WANTED)
    avro.write(avro.walk(data).schema, rows(3))
    assert json.dumps(avro.walk(data).schema) == before
    assert avro.walk(data).schema is avro.walk(avro.write(SCHEMA, rows(1))).schema


def test_damage_to_a_deflated_block_is_reported_as_zlib_reports_it():
    data = bytearray(avro.write(SCHEMA, rows(5000), codec="deflate"))
    data[avro.walk(bytes(data)).blocks[0].start] |= 6
    with pytest.raises(avro.ContainerError, match="invalid block type"):
        avro.read_columns(bytes(data), WANTED)
