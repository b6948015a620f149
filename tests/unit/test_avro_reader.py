"""The compiled reader by itself: what it hands over, once, and never more of than Arrow can hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from lakesweep.formats import avro
from lakesweep.formats import avro_bytes as _avro
from lakesweep.formats.avro_columns import compiled, is_alike

n = avro._long
TEXTS = {"type": "array", "items": "string"}
SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "texts", "type": TEXTS},
        {"name": "number", "type": "int"},
        {"name": "large", "type": "long"},
    ],
}


def program(*names: str) -> Any:
    found = compiled(SCHEMA, {name: (name,) for name in names})
    assert found is not None
    return found


def row(text: bytes | None, texts: int = 0, number: int = 1, large: int = 2) -> bytes:
    first = n(0) if text is None else n(1) + n(len(text)) + text
    return first + (n(texts) + (n(1) + b"x") * texts if texts else b"") + n(0) + n(number) + n(large)


@pytest.mark.parametrize(
    ("name", "rows", "size"),
    [
        ("text", [row(b"abcd"), row(b"ef")], 6),
        ("text", [row(b"abcdef"), row(None)], 6),
        ("texts", [row(b"", 3), row(b"", 2)], 5),
        ("texts", [n(0) + n(5) + n(0) * 5 + n(0) + n(1) + n(2)], 5),
    ],
)
def test_a_column_beyond_its_offsets_is_refused(name, rows, size):
    wanted = program(name)
    block = b"".join(rows)
    assert _avro.Reader(wanted.code, wanted.kinds, size).read([block], [len(rows)])
    assert not _avro.Reader(wanted.code, wanted.kinds, size - 1).read([block], [len(rows)])
    assert _avro.Reader(wanted.code, wanted.kinds).read([block], [len(rows)])


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_that_limit_is_not_one_for_numbers(value):
    wanted = program("number", "large")
    reader = _avro.Reader(wanted.code, wanted.kinds, 5)
    assert reader.read([row(None, number=value, large=2**63 - 1)], [1])
    assert not reader.read([row(None, number=value * 2)], [1])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000, 5000])
def test_buffers_are_as_long_as_their_values(count):
    found = program("text", "texts", "number", "large").read([(row(b"abc", 1) * count + row(None), count + 1)])
    assert found is not None
    text, number = found["text"].buffers(), found["number"].buffers()
    assert [buffer.size for buffer in text] == [count // 8 + 1, 4 * (count + 2), 3 * count]
    assert (number[0], number[1].size) == (None, 4 * (count + 1))
    assert found["large"].buffers()[1].size == 8 * (count + 1)
    for column in found.values():
        column.validate(full=True)
        assert column.offset == 0


def test_a_reader_hands_over_once_and_only_what_was_in_order():
    wanted = program("text")
    reader = _avro.Reader(wanted.code, wanted.kinds)
    assert reader.read([row(b"abc")], [1])
    assert reader.finish()[0][:2] == (1, 0)
    for again in (reader.finish, lambda: reader.read([row(b"abc")], [1])):
        with pytest.raises(ValueError, match="nothing"):
            again()
    broken = _avro.Reader(wanted.code, wanted.kinds)
    assert not broken.read([row(b"abc")[:-1]], [1])
    for after in (broken.finish, lambda: broken.read([row(b"abc")], [1])):
        with pytest.raises(ValueError, match="nothing"):
            after()
    failed = _avro.Reader(wanted.code, wanted.kinds)
    with pytest.raises(TypeError):
        failed.read([row(b"abc"), None], [1, 1])
    with pytest.raises(ValueError, match="nothing"):
        failed.finish()


@pytest.mark.parametrize(("blocks", "rows"), [([b""], []), ([], [1]), ([None], [1]), (["text"], [1]), ([b""], [2**70])])
def test_blocks_that_are_not_bytes_with_a_number_of_rows_are_an_error(blocks, rows):
    wanted = program("text")
    reader = _avro.Reader(wanted.code, wanted.kinds)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        reader.read(blocks, rows)


def test_threads_share_a_program():
    wanted = program("text", "texts", "number")
    blocks = [(row(b"abc", 2) * 500 + row(None, number=7), 501)] * 20

    def read(_: int) -> Any:
        return wanted.read(blocks)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, range(16)))
    assert all(one == found[0] for one in found)
    assert found[0]["text"].to_pylist() == (["abc"] * 500 + [None]) * 20


def test_columns_outlive_their_reader():
    found = program("text").read([(row(b"abc") * 2000, 2000)])
    assert found is not None
    text = found.pop("text").slice(1998)
    assert program("text").read([(row(b"xyz") * 2000, 2000)]) is not None
    assert text.to_pylist() == ["abc", "abc"]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int8(), pa.int64()),
        (pa.int64(), pa.int32()),
        (pa.binary(), pa.string()),
        (pa.large_string(), pa.string()),
        (pa.null(), pa.string()),
        (pa.list_(pa.null()), pa.list_(pa.string())),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms")),
        (pa.int64(), pa.timestamp("ms")),
    ],
)
def test_only_values_of_one_kind_are_cast(found, wanted):
    assert is_alike(found, wanted)
    for other in (pa.float64(), pa.bool_(), pa.struct([]), pa.list_(pa.float64())):
        assert not is_alike(other, wanted)
    assert not is_alike(pa.string(), pa.int64())
    assert not is_alike(pa.int64(), pa.string())
    assert not is_alike(pa.timestamp("ms"), pa.int64())
    assert not is_alike(pa.string(), pa.timestamp("ms"))


@pytest.mark.parametrize("length", [0, 15, 17])
def test_blocks_are_not_stepped_over_by_a_marker_of_another_length(length):
    block = n(1) + n(1) + n(7) + bytes(16)
    assert len(_avro.step(block, 0, bytes(16))) == 1
    with pytest.raises(_avro.ContainerError):
        _avro.step(block, 0, bytes(length))


@pytest.mark.parametrize("cut", range(1, 17))
def test_a_truncated_sync_marker_is_damage(cut):
    block = n(1) + n(1) + n(7) + bytes(16)
    with pytest.raises(_avro.ContainerError):
        _avro.step(block[:-cut], 0, bytes(16))
