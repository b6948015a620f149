"""The inner loops over Avro bytes in plain Python: what `_avro` does, where it is not compiled. Same answers, slower.
No claimed number decides an allocation, and every number, length, index and end is checked. At the first invalid byte
the whole read stops, and the caller lets the reference reader decide; no row is ever guessed or left out."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_SYNC_BYTES = 16
_LAST_SHIFT = 63
"""Of the tenth byte of a number, which may add one bit."""


class ContainerError(ValueError):
    """The bytes are not one whole, well-formed Avro container."""


class Op(IntEnum):
    """What a program is made of, and what follows each in its code."""

    SKIP_NUMBER = 0
    SKIP_FIXED = 1  # how many bytes
    SKIP_BYTES = 2
    SKIP_BOOLEAN = 3
    SKIP_ENUM = 4  # how many symbols
    UNION = 5  # how many branches, then where the code of each begins
    JUMP = 6  # where to
    LOOP = 7  # where the code of one item ends; it follows
    TAKE = 8  # into which column
    TAKE_NULL = 9  # into which column
    TAKE_LIST = 10  # into which column, where the code of one item ends; it follows


class Kind(IntEnum):
    """What a column holds."""

    INT = 0
    LONG = 1
    BYTES = 2
    LIST = 3  # of what the column behind it holds


class _OutOfOrder(Exception):
    """The bytes are not rows of this program."""


# Plain numbers: looking up a member of an enumeration takes longer than what is done for it.
_SKIP_NUMBER, _SKIP_FIXED, _SKIP_BYTES, _SKIP_BOOLEAN, _SKIP_ENUM = 0, 1, 2, 3, 4
_UNION, _JUMP, _LOOP, _TAKE, _TAKE_NULL, _TAKE_LIST = 5, 6, 7, 8, 9, 10
_LONG, _BYTES, _LIST = 1, 2, 3


class _Column:
    """The values of one column so far."""

    __slots__ = ("data", "fixed", "kind", "most", "nulls", "valid")

    def __init__(self, kind: int, longest: int) -> None:
        self.kind = kind
        self.most = longest if kind >= _BYTES else _INT32_MAX
        self.nulls = 0
        self.valid = bytearray()  # a byte for each value
        # Numbers, or where each value ends in `data` or in the column of items. The first begins where none has ended.
        self.fixed = array("q" if kind == _LONG else "i", [0] if kind >= _BYTES else [])
        self.data = bytearray()

    def append(self, number: int, is_valid: int) -> None:
        if self.kind != _LONG and not _INT32_MIN <= number <= self.most:
            raise _OutOfOrder
        self.fixed.append(number)
        self.valid.append(is_valid)
        self.nulls += 1 - is_valid

    def handed_over(self) -> tuple[int, int, list[Any]]:
        valid = np.packbits(np.frombuffer(self.valid, np.uint8), bitorder="little").tobytes() if self.nulls else None
        buffers: list[Any] = [valid, self.fixed]
        if self.kind == _BYTES:
            buffers.append(self.data)
        return len(self.valid), self.nulls, buffers


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits, and where it ends. IndexError where the bytes are over."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    found, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        if shift == _LAST_SHIFT and byte > 1:
            raise _OutOfOrder
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + 1
        shift += 7


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A number of bytes, all of which are there, and where they begin."""
    size, at = _number(data, at)
    if not 0 <= size <= len(data) - at:
        raise _OutOfOrder
    return size, at


class _Rows:
    """Runs a program over the rows of one block. Its methods take a position in the data and return the next one."""

    def __init__(self, code: Sequence[int], data: bytes, columns: Sequence[_Column]) -> None:
        self._code, self._data, self._columns = code, data, columns

    def run(self, begin: int, end: int, at: int) -> int:
        code, data = self._code, self._data
        step = begin
        while step < end:
            op = code[step]
            if op == _SKIP_NUMBER:
                _, at = _number(data, at)
                step += 1
            elif op == _SKIP_BYTES:
                size, at = _length(data, at)
                at += size
                step += 1
            elif op == _UNION:
                branch, at = _number(data, at)
                if not 0 <= branch < code[step + 1]:
                    raise _OutOfOrder
                step = code[step + 2 + branch]
            elif op == _JUMP:
                step = code[step + 1]
            elif op == _LOOP:
                at = self._items(step + 2, code[step + 1], at)
                step = code[step + 1]
            elif op == _TAKE_LIST:
                at = self._items(step + 3, code[step + 2], at)
                column = code[step + 1]
                self._columns[column].append(len(self._columns[column + 1].valid), 1)
                step = code[step + 2]
            elif op in (_TAKE, _TAKE_NULL):
                at = self._take(code[step + 1], at) if op == _TAKE else self._take_null(code[step + 1], at)
                step += 2
            else:
                at = self._skip(op, code[step + 1] if op != _SKIP_BOOLEAN else 0, at)
                step += 1 if op == _SKIP_BOOLEAN else 2
        return at

    def _skip(self, op: int, size: int, at: int) -> int:
        if op == _SKIP_FIXED:
            if size > len(self._data) - at:
                raise _OutOfOrder
            return at + size
        if op == _SKIP_BOOLEAN:
            if self._data[at] > 1:
                raise _OutOfOrder
            return at + 1
        if op != _SKIP_ENUM:
            raise _OutOfOrder
        symbol, at = _number(self._data, at)
        if not 0 <= symbol < size:
            raise _OutOfOrder
        return at

    def _take(self, index: int, at: int) -> int:
        column = self._columns[index]
        if column.kind != _BYTES:
            number, at = _number(self._data, at)
            column.append(number, 1)
            return at
        size, at = _length(self._data, at)
        column.data += self._data[at : at + size]
        column.append(len(column.data), 1)
        return at + size

    def _take_null(self, index: int, at: int) -> int:
        """A null ends where the value before it does."""
        column = self._columns[index]
        if column.kind == _BYTES:
            column.append(len(column.data), 0)
        else:
            column.append(len(self._columns[index + 1].valid) if column.kind == _LIST else 0, 0)
        return at

    def _items(self, begin: int, end: int, at: int) -> int:
        code = self._code
        is_pair = end - begin == 2 and code[begin] == _SKIP_NUMBER and code[begin + 1] in (_SKIP_NUMBER, _SKIP_BYTES)
        while True:
            count, at = _number(self._data, at)
            if count == 0:
                return at
            finish = None
            if count < 0:
                size, at = _length(self._data, at)
                if count == _INT64_MIN:
                    raise _OutOfOrder
                count, finish = -count, at + size
            # An item takes one byte at least, so that no count keeps us here longer than there are bytes.
            if is_pair:
                at = self._skip_pairs(code[begin + 1] == _SKIP_BYTES, count, at)
            else:
                for _ in range(count):
                    at = self.run(begin, end, at)
            if finish is not None and at != finish:
                raise _OutOfOrder

    def _skip_pairs(self, has_bytes: bool, count: int, at: int) -> int:
        """Items that are two numbers, or a number and bytes: the statistics, which are most of a manifest."""
        data = self._data
        for _ in range(count):
            if data[at] < 0x80:
                at += 1
            else:
                _, at = _number(data, at)
            if has_bytes:
                size, at = _length(data, at)
                at += size
            elif data[at] < 0x80:
                at += 1
            else:
                _, at = _number(data, at)
        return at


class Reader:
    """Picks columns out of rows by a program, which must be sound: it is our compiler's, and never a file's."""

    def __init__(self, code: array[int], kinds: bytes, longest: int = _INT32_MAX) -> None:
        """`longest` is how many bytes or items a column may have: Arrow's offsets have 32 bits."""
        self._code = list(code)
        self._columns = [_Column(kind, longest) for kind in kinds]
        self._is_usable = True

    def read(self, blocks: list[bytes], rows: list[int]) -> bool:
        """Read on, through uncompressed blocks. Whether each holds exactly so many rows, in order, and nothing else; if
        one does not, nothing that was read is of use."""
        if not self._is_usable or len(blocks) != len(rows):
            raise ValueError("there is nothing to read into, or not a number of rows for each block")
        self._is_usable = False  # by another thread in the meantime, or after an error
        if not all(isinstance(block, bytes) for block in blocks):
            raise TypeError("a block is bytes")
        if not all(_INT64_MIN <= count <= _INT64_MAX for count in rows):
            raise OverflowError("a number of rows has 64 bits")
        try:
            self._is_usable = all(self._reads(block, count) for block, count in zip(blocks, rows, strict=True))
        except (_OutOfOrder, IndexError):  # the latter where the bytes are over
            return False
        return self._is_usable

    def _reads(self, block: bytes, count: int) -> bool:
        rows, at, end = _Rows(self._code, block, self._columns), 0, len(self._code)
        # A row takes one byte at least, so that no number of rows keeps us here longer than there are bytes.
        for _ in range(count):
            at = rows.run(0, end, at)
        return at == len(block)

    def finish(self) -> list[tuple[int, int, list[Any]]]:
        """Each column's length, nulls and buffers as Arrow has them. Nothing is left to read into."""
        if not self._is_usable:
            raise ValueError("there is nothing to hand over")
        self._is_usable = False
        return [column.handed_over() for column in self._columns]


@dataclass(frozen=True, slots=True)
class Block:
    """One data block: how many rows, and where its compressed bytes are."""

    rows: int
    start: int
    end: int


def read_long(data: bytes, position: int) -> tuple[int, int]:
    try:
        return _number(data, max(position, 0))
    except IndexError:
        raise ContainerError("cut off in the middle of a number") from None
    except _OutOfOrder:
        raise ContainerError("a number is too long") from None


def step(data: bytes, position: int, sync: bytes) -> list[Block]:
    """Every block from a position to the end of the data; ContainerError unless all of them are in order."""
    if len(sync) != _SYNC_BYTES or not 0 <= position <= len(data):
        raise ContainerError("the header is cut off")
    found: list[Block] = []
    at = position
    while at < len(data):
        rows, at = read_long(data, at)
        size, at = read_long(data, at)
        whole = rows >= 0 and 0 <= size <= len(data) - at - _SYNC_BYTES
        if not whole or data[at + size : at + size + _SYNC_BYTES] != sync:
            raise ContainerError(f"the block at byte {at} is cut off or damaged")
        found.append(Block(rows, at, at + size))
        at += size + _SYNC_BYTES
    return found
