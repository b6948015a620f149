"""The shared Avro reader: frames, codecs, and that nothing is ever read short or for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesweep.formats import avro

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


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_the_varint(value):
    assert avro._read_long(avro._long(value), 0)[0] == value
