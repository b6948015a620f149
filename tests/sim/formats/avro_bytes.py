"""Avro files by hand: a header that is made once, and rows as plain bytes. A thousandth of a writer library's cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

SYNC = bytes(range(16))


def long(value: int) -> bytes:
    """An int or a long."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    """A string."""
    data = value.encode()
    return long(len(data)) + data


NULL = b"\x00"
"""The first branch of a union with null."""


def some(data: bytes) -> bytes:
    """The second branch of a union with null."""
    return b"\x02" + data


def header(schema: Mapping[str, Any], /, **metadata: str) -> bytes:
    """Everything before the first block; codec null. Keep the result: it does not change."""
    entries = {"avro.schema": json.dumps(schema), "avro.codec": "null", **metadata}
    body = b"".join(text(key) + text(value) for key, value in entries.items())
    return b"Obj\x01" + long(len(entries)) + body + b"\x00" + SYNC


def file(begin: bytes, rows: Sequence[bytes]) -> bytes:
    """A whole file of one block."""
    if not rows:
        return begin
    data = b"".join(rows)
    return begin + long(len(rows)) + long(len(data)) + data + SYNC


@lru_cache(maxsize=4096)
def small(value: int) -> bytes:
    """The same as `long`, remembered."""
    return long(value)
