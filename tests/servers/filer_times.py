"""Change the time of an object in SeaweedFS through its filer, with hand-encoded messages.

Of an entry only its attributes (field 4) and in those only the time (field 2) are touched; every other byte
goes back as it came.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import grpc

_SERVICE = "/filer_pb.SeaweedFiler"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ATTRIBUTES, _MTIME, _MODE, _MD5 = 4, 2, 3, 14
_MD5_OF_NOTHING = bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")


def set_mtime(filer: str, path: str, when: datetime) -> None:
    """`path` is the entry's full path, `/buckets/<bucket>/<key>`."""
    directory, _, name = path.rpartition("/")
    with grpc.insecure_channel(filer) as channel:
        found = _call(channel, "LookupDirectoryEntry", _bytes(1, directory.encode()) + _bytes(2, name.encode()))
        entry = next(value for number, _, value in _fields(found) if number == 1)
        assert isinstance(entry, bytes)
        changed = b"".join(
            _bytes(number, _with_mtime(value, int(when.timestamp()))) if number == _ATTRIBUTES else raw
            for number, raw, value in _fields(entry)
        )
        _call(channel, "UpdateEntry", _bytes(1, directory.encode()) + _bytes(2, changed))


def create_empty(channel: grpc.Channel, path: str, when: datetime) -> grpc.Future:
    """Begin to make an empty file of that time; what is returned tells when it is there."""
    directory, _, name = path.rpartition("/")
    mode = _varint(_MODE << 3 | _VARINT) + _varint(0o644)
    attributes = _with_mtime(mode + _bytes(_MD5, _MD5_OF_NOTHING), int(when.timestamp()))
    entry = _bytes(1, name.encode()) + _bytes(_ATTRIBUTES, attributes)
    request = _bytes(1, directory.encode()) + _bytes(2, entry)
    return channel.unary_unary(f"{_SERVICE}/CreateEntry").future(request, timeout=60)


def _with_mtime(attributes: bytes, seconds: int) -> bytes:
    kept = b"".join(raw for number, raw, _ in _fields(attributes) if number != _MTIME)
    return kept + _varint(_MTIME << 3 | _VARINT) + _varint(seconds)


def _call(channel: grpc.Channel, method: str, request: bytes) -> bytes:
    call = channel.unary_unary(f"{_SERVICE}/{method}")
    answer: bytes = call(request, timeout=10)
    return answer


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, at
        shift += 7


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, the field as encoded, its payload) of every field."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        kind = tag & 7
        body = at
        if kind == _VARINT:
            _, at = _read_varint(message, at)
        elif kind == _BYTES:
            length, body = _read_varint(message, at)
            at = body + length
        else:
            at += {_FIXED64: 8, _FIXED32: 4}[kind]
        yield tag >> 3, message[start:at], message[body:at]
