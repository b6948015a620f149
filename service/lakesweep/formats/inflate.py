"""Uncompress and parse what a tenant has stored, in bounded steps: a few bytes may stand for as many as one likes.
Everything here raises a ValueError (TooMuch among them) as soon as the allowance is used up, and has not built more
than that by then. Real metadata is far from it; see `bounds`."""

from __future__ import annotations

import bz2
import json
import lzma
import threading
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pyarrow as pa
from zlib_ng import zlib_ng

from lakesweep.formats import bounds

_RAW_DEFLATE = -15
_GZIP = 31
_ROOM_BYTES = 1024 * 1024
"""Enough for most blocks once they are decompressed; writers make blocks of 64 kB."""
_COST_OF_OBJECT, _COST_OF_VALUE, _COST_OF_CHARACTER = 100, 60, 2
"""Bytes that Python needs, about, for each brace, each comma, colon or bracket, and each character of a JSON text."""
_SURE_BYTES = 1024 * 1024
"""A JSON text up to here needs no counting."""

_thread = threading.local()


class Damaged(ValueError):
    """Compressed data that is cut off or not what it says."""


def gunzip(data: bytes, at_most: int) -> bytes:
    """A whole gzip file, of one or several members. Damaged if it is not."""
    parts: list[bytes] = []
    while data:
        unzip = zlib_ng.decompressobj(wbits=_GZIP)
        try:
            parts.append(_finished(unzip, data, at_most))
        except zlib_ng.error as exc:  # type: ignore[misc]  # it is one
            raise Damaged(str(exc)) from exc
        at_most -= len(parts[-1])
        data = unzip.unused_data.lstrip(b"\0")  # some writers fill up with zeros
    return b"".join(parts)


def parse_json(data: bytes | str) -> Any:
    """A JSON document that becomes neither too deep nor too large."""
    if len(data) > _SURE_BYTES:
        cost = _cost(data)
        if cost > bounds.most():
            raise bounds.TooMuch(bounds.most())
        bounds.check_memory(cost)
    try:
        return json.loads(data)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


def _cost(data: bytes | str) -> int:
    marks = (b"{", b",", b":", b"[") if isinstance(data, bytes) else ("{", ",", ":", "[")
    objects, *values = (data.count(mark) for mark in marks)  # type: ignore[arg-type]  # of the same kind as the text
    return objects * _COST_OF_OBJECT + sum(values) * _COST_OF_VALUE + len(data) * _COST_OF_CHARACTER


def _finished(unpack: Any, data: bytes, at_most: int) -> bytes:
    plain = _checked(bytes(unpack.decompress(data, at_most + 1)), at_most)
    if not unpack.eof:
        raise Damaged("the compressed data is truncated")
    return plain


def _zstandard(data: bytes, at_most: int) -> bytes:
    room = getattr(_thread, "room", None)
    if room is None:
        room = _thread.room = bytearray(_ROOM_BYTES)
    try:
        return _checked(bytes(memoryview(room)[: cramjam.zstd.decompress_into(data, room)]), at_most)
    except cramjam.DecompressionError:  # damaged, or larger than that room
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return _checked(stream.read(at_most + 1), at_most)


def _snappy(data: bytes, at_most: int) -> bytes:
    packed = data[:-4]
    if cramjam.snappy.decompress_raw_len(packed) > at_most:
        raise bounds.TooMuch(at_most)
    plain = bytes(cramjam.snappy.decompress_raw(packed))
    if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
        raise Damaged("a block's checksum does not match")
    return plain


def _checked(plain: bytes, at_most: int) -> bytes:
    if len(plain) > at_most:
        raise bounds.TooMuch(at_most)
    return plain


CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": _checked,
    "deflate": lambda data, at_most: _finished(zlib_ng.decompressobj(wbits=_RAW_DEFLATE), data, at_most),
    "zstandard": _zstandard,
    "snappy": _snappy,
    "bzip2": lambda data, at_most: _finished(bz2.BZ2Decompressor(), data, at_most),
    "xz": lambda data, at_most: _finished(lzma.LZMADecompressor(memlimit=max(at_most, _ROOM_BYTES)), data, at_most),
}
"""How one compressed block of an Avro container is uncompressed to at most so many bytes."""
