"""Partition values as Paimon stores them in manifests: `[4-byte big-endian arity][row]`. Pure. Bytes of an existing
partition are always copied verbatim: two writers may spell one value in two ways, and a DELETE only cancels the ADD
whose bytes it repeats. Encoding here is for statistics of new manifests alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, assert_never

from lakesweep.formats.paimon.schema import FieldType, Kind

_EPOCH_DATE = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock values have no zone
_COMPACT_TIMESTAMP = 3
_COMPACT_DECIMAL = 18
_INLINE_BYTES = 7
_SLOT = 8


class OutsideCalendar(ValueError):
    """A day or a moment that no calendar of ours knows. Somebody wrote microseconds for milliseconds, mostly."""


class Timestamp(NamedTuple):
    """Milliseconds since 1970 and the nanoseconds beyond, exact. A wall clock for TIMESTAMP, UTC for TIMESTAMP_LTZ."""

    millis: int
    nanos: int = 0

    def moment(self) -> datetime:
        """The same without a zone, to the microsecond. Raises OutsideCalendar."""
        try:
            return _EPOCH + timedelta(milliseconds=self.millis, microseconds=self.nanos // 1000)
        except OverflowError as exc:
            raise OutsideCalendar(f"millisecond {self.millis} is outside the calendar") from exc


Value = bool | int | float | str | bytes | date | time | Timestamp | Decimal | None
"""A decoded partition value."""


def decode_row(data: bytes, types: Sequence[FieldType]) -> tuple[Value, ...]:
    """The values of one row. Raises ValueError when the bytes do not fit the types."""
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(types):
        raise ValueError(f"a row of {len(types)} fields cannot begin with {data[:8].hex()}")
    row = data[4:]
    fixed = _null_bytes(len(types))
    if len(row) < fixed + _SLOT * len(types):
        raise ValueError("the row is truncated")
    return tuple(
        None if _is_null(row, index) else _decode_field(row, fixed + _SLOT * index, type_)
        for index, type_ in enumerate(types)
    )


def encode_row(values: Sequence[Value], types: Sequence[FieldType]) -> bytes:
    fixed = _null_bytes(len(types))
    row = bytearray(fixed + _SLOT * len(types))
    for index, (value, type_) in enumerate(zip(values, types, strict=True)):
        slot = fixed + _SLOT * index
        if value is None:
            row[(index + 8) // 8] |= 1 << ((index + 8) % 8)
        else:
            _encode_field(row, slot, value, type_)
    return len(types).to_bytes(4, "big") + bytes(row)


def sort_key(value: Value) -> Any:
    """Orders values of one type as Paimon does: text by its UTF-8 bytes."""
    return value.encode() if isinstance(value, str) else value


def millis_of_day(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _null_bytes(arity: int) -> int:
    return (arity + 63 + 8) // 64 * 8


def _is_null(row: bytes, index: int) -> bool:
    bit = index + 8  # the first byte is the row kind
    return bool(row[bit // 8] & (1 << (bit % 8)))


def _decode_field(row: bytes, slot: int, type_: FieldType) -> Value:  # noqa: PLR0911 - one return per type
    match type_.kind:
        case Kind.BOOLEAN:
            return row[slot] != 0
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT:
            return int(struct.unpack_from(_NUMBERS[type_.kind], row, slot)[0])
        case Kind.FLOAT | Kind.DOUBLE:
            return float(struct.unpack_from(_NUMBERS[type_.kind], row, slot)[0])
        case Kind.DATE:
            return _date(struct.unpack_from("<i", row, slot)[0])
        case Kind.TIME:
            return (_EPOCH + timedelta(milliseconds=struct.unpack_from("<i", row, slot)[0])).time()
        case Kind.STRING:
            return _var_bytes(row, slot).decode()
        case Kind.BYTES:
            return _var_bytes(row, slot)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_LTZ:
            return _decode_timestamp(row, slot, type_)
        case Kind.DECIMAL:
            return _decode_decimal(row, slot, type_)
        case _:
            assert_never(type_.kind)


def _encode_field(row: bytearray, slot: int, value: Any, type_: FieldType) -> None:
    match type_.kind:
        case Kind.BOOLEAN:
            row[slot] = int(value)
        case Kind.TINYINT | Kind.SMALLINT | Kind.INT | Kind.BIGINT | Kind.FLOAT | Kind.DOUBLE:
            struct.pack_into(_NUMBERS[type_.kind], row, slot, value)
        case Kind.DATE:
            struct.pack_into("<i", row, slot, (value - _EPOCH_DATE).days)
        case Kind.TIME:
            struct.pack_into("<i", row, slot, millis_of_day(value))
        case Kind.STRING | Kind.BYTES:
            _put_var_bytes(row, slot, value.encode() if isinstance(value, str) else value)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_LTZ:
            if type_.precision <= _COMPACT_TIMESTAMP:
                struct.pack_into("<q", row, slot, value.millis)
            else:
                struct.pack_into("<II", row, slot, value.nanos, len(row))
                row += struct.pack("<q", value.millis)
        case Kind.DECIMAL:
            unscaled = _unscaled(value, type_.scale)
            if type_.precision <= _COMPACT_DECIMAL:
                struct.pack_into("<q", row, slot, unscaled)
            else:
                raw = unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)
                struct.pack_into("<II", row, slot, len(raw), len(row))
                row += raw.ljust(16, b"\0")
        case _:
            assert_never(type_.kind)


_NUMBERS = {
    Kind.TINYINT: "<b", Kind.SMALLINT: "<h", Kind.INT: "<i", Kind.BIGINT: "<q", Kind.FLOAT: "<f", Kind.DOUBLE: "<d",
}  # fmt: skip


def _date(days: int) -> date:
    try:
        return _EPOCH_DATE + timedelta(days=days)
    except OverflowError as exc:
        raise OutsideCalendar(f"day {days} is outside the calendar") from exc


def _var_bytes(row: bytes, slot: int) -> bytes:
    """Short values sit in the slot itself; the mark is the top bit of its last byte."""
    if row[slot + 7] & 0x80:
        return row[slot : slot + (row[slot + 7] & 0x7F)]
    size, offset = struct.unpack_from("<II", row, slot)
    return _slice(row, offset, size)


def _put_var_bytes(row: bytearray, slot: int, value: bytes) -> None:
    if len(value) <= _INLINE_BYTES:
        row[slot : slot + len(value)] = value
        row[slot + 7] = 0x80 | len(value)
        return
    struct.pack_into("<II", row, slot, len(value), len(row))
    row += value.ljust((len(value) + 7) // 8 * 8, b"\0")


def _decode_timestamp(row: bytes, slot: int, type_: FieldType) -> Timestamp:
    if type_.precision <= _COMPACT_TIMESTAMP:
        return Timestamp(struct.unpack_from("<q", row, slot)[0])
    nanos, offset = struct.unpack_from("<II", row, slot)
    return Timestamp(struct.unpack("<q", _slice(row, offset, 8))[0], nanos)


def _decode_decimal(row: bytes, slot: int, type_: FieldType) -> Decimal:
    if type_.precision <= _COMPACT_DECIMAL:
        unscaled = struct.unpack_from("<q", row, slot)[0]
    else:
        size, offset = struct.unpack_from("<II", row, slot)
        unscaled = int.from_bytes(_slice(row, offset, size), "big", signed=True)
    return Decimal(f"{unscaled}E-{type_.scale}")  # text, because arithmetic would round to the context


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -number if sign else number


def _slice(row: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(row):
        raise ValueError("a value reaches beyond the end of its row")
    return row[offset : offset + size]
