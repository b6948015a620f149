"""Avro object containers: framing, codecs, and the guard against short reads. A container cut at a block end gives
fewer rows without any error, and a row that is not seen is a live file that gets deleted. So every read first walks
over the block headers, checks each sync marker and the exact end, and counts the rows; the decoder then compares. A
file truncated exactly after a block is caught by the caller, with the recorded length and count."""

from __future__ import annotations

import functools
import io
import json
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import cramjam
import fastavro
import pyarrow as pa

from lakesweep.formats import avro_bytes, bounds
from lakesweep.formats.avro_bytes import Block, read_long, step
from lakesweep.formats.avro_columns import Path, Program, check_no_empty_items, compiled
from lakesweep.formats.avro_schema import check_schema
from lakesweep.formats.inflate import CODECS, parse_json

ContainerError = avro_bytes.ContainerError
MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BLOCK_BYTES = 64_000
"""Uncompressed size of the blocks we write; Java's Avro uses the same."""
_LARGEST_SCHEMA = 4 * 1024 * 1024
"""Schemas are remembered, and those of tables with ten thousand columns are smaller."""
_IN_FULL_RATIO = 16
_ROWS_AT_LEAST = 1_000_000
_BYTES_PER_ROW = 64
"""In full, a row of more than a million has more bytes than this; as a Python object it takes some hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The frame of a container whose every sync marker was checked."""

    schema: Any
    """Shared by all containers that have the same: never changed by anyone."""
    metadata: Mapping[str, bytes]
    codec: str
    sync: bytes
    body: int
    """Where the header ends and the blocks begin."""
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)


def walk(data: bytes) -> Container:
    """Read the header and step over every block; raise ContainerError unless all of it is valid."""
    if data[:4] != MAGIC:
        raise ContainerError("not an Avro container")
    metadata, position = _read_metadata(data, 4)
    sync = data[position : position + _SYNC_BYTES]
    position += _SYNC_BYTES
    if len(sync) != _SYNC_BYTES or "avro.schema" not in metadata:
        raise ContainerError("the header is truncated")
    if len(metadata["avro.schema"]) > _LARGEST_SCHEMA:
        raise ContainerError("its schema is too large")
    blocks = tuple(step(data, position, sync))
    schema = _parsed(metadata["avro.schema"])
    codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
    return Container(schema=schema, metadata=metadata, codec=codec, sync=sync, body=position, blocks=blocks)


@functools.lru_cache(maxsize=64)
def _parsed(schema: bytes) -> Any:
    """A writer's files share their schema, and parsing it takes longer than reading a hundred rows."""
    try:
        parsed = parse_json(schema)
    except ValueError as exc:
        raise ContainerError(f"the schema is not JSON: {exc}") from exc
    check_schema(parsed)
    return parsed


def read_records(data: bytes, container: Container | None = None) -> list[dict[str, Any]]:
    """Every record in full, as dicts. For small containers and for those that will be written again."""
    container = container or walk(data)
    return decode_rows(inflate(data, container), container.schema, container.rows)


def decode_rows(blocks: Sequence[bytes], schema: Any, promised: int, wanted: Any = None) -> list[dict[str, Any]]:
    """The records of uncompressed blocks, by fastavro: in full, or with the fields of `wanted`, which is the same
    schema with fields left out. They must be as many as promised and end where the bytes end. They are read as one
    array (a count, the items, a zero), which spares the reader most of its work for each row."""
    check_no_empty_items(schema)
    if promised > _ROWS_AT_LEAST + sum(map(len, blocks)) // _BYTES_PER_ROW:
        raise ContainerError(f"the block headers claim {promised} rows, too many to be rows of metadata")
    framed = b"".join([_long(promised) if promised else b"", *blocks, _long(0)])
    if promised > len(framed):  # rows without any bytes could be repeated without end
        raise ContainerError(f"the block headers claim {promised} rows, more than there are bytes")
    stream = io.BytesIO(framed)
    written = {"type": "array", "items": schema}
    read = None if wanted is None else {"type": "array", "items": wanted}
    try:
        records = cast("list[dict[str, Any]]", fastavro.schemaless_reader(stream, written, read))
    except Exception as exc:  # fastavro raises whatever a broken byte leads it to
        raise ContainerError(f"its rows cannot be decoded ({type(exc).__name__}: {exc})") from exc
    if len(records) != promised or stream.tell() != len(framed):
        raise ContainerError(f"there are bytes left after the {promised} rows that the block headers claim")
    return records


def values(records: Sequence[Mapping[str, Any]], path: Sequence[str]) -> list[Any]:
    """One field of every record; null where a record on the way to it is."""
    found: list[Any] = list(records)
    for part in path:
        try:
            found = [None if one is None else one.get(part) for one in found]
        except AttributeError as exc:  # a branch of a union that is not the record
            raise ContainerError(f"a row has an unexpected value where {part} should be") from exc
    return found


def read_columns(data: bytes, columns: Mapping[str, Sequence[str]]) -> pa.Table:
    """Some columns, by the fast reader: `{name: path of field names}`. Fields that the file lacks are null. Falls back
    to the slow reader for what the fast one cannot read; never returns fewer rows than promised."""
    container = walk(data)
    present, program = _chosen(
        container.metadata["avro.schema"], tuple((name, tuple(path)) for name, path in columns.items())
    )
    found = read_fast(data, container, program)
    if found is None:
        records = read_records(data, container)
        found = {name: pa.array(values(records, path)) for name, path in present.items()}
    table = pa.table({name: found[name] if name in found else pa.nulls(container.rows) for name in columns})
    if table.num_rows != container.rows:
        raise ContainerError(f"{table.num_rows} rows decoded, the block headers claim {container.rows}")
    return table


def read_fast(data: bytes, container: Container, program: Program | None) -> dict[str, pa.Array] | None:
    """The columns of a program. None if there is none, or if anything is invalid: then fastavro decides."""
    return None if program is None else program.read(inflated(data, container))


@functools.lru_cache(maxsize=64)
def _chosen(schema: bytes, columns: tuple[tuple[str, Path], ...]) -> tuple[dict[str, Path], Program | None]:
    parsed = _parsed(schema)
    try:
        present = {name: path for name, path in columns if _has_field(parsed, path)}
    except (AttributeError, KeyError, TypeError) as exc:
        raise ContainerError(f"its schema is malformed ({type(exc).__name__}: {exc})") from exc
    return present, compiled(parsed, present) if present else None


def inflate(data: bytes, container: Container) -> list[bytes]:
    """Each block uncompressed, to become Python objects: these take many times as much, so less is allowed."""
    allowed = bounds.allowance(len(data), _IN_FULL_RATIO)
    return [block for block, _ in inflated(data, container, allowed)]


def inflated(data: bytes, container: Container, allowed: int | None = None) -> Iterator[tuple[bytes, int]]:
    """Each block uncompressed, one by one, and how many rows its header promises. All together may not be larger than
    metadata of the container's size is."""
    left = bounds.allowance(len(data)) if allowed is None else allowed
    for block in container.blocks:
        try:
            plain = CODECS[container.codec](data[block.start : block.end], left)
        except KeyError as exc:
            raise ContainerError(f"unknown codec {container.codec!r}") from exc
        except Exception as exc:  # each codec has errors of its own
            raise ContainerError(f"a block cannot be uncompressed ({type(exc).__name__}: {exc})") from exc
        left -= len(plain)
        yield plain, block.rows


def write(schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], *, codec: str = "zstandard") -> bytes:
    """A container of these records. Same records, other bytes: the sync marker is random."""
    plain = io.BytesIO()
    sync = secrets.token_bytes(_SYNC_BYTES)
    parsed = fastavro.parse_schema(dict(schema))
    fastavro.writer(plain, parsed, records, codec="null", sync_marker=sync, sync_interval=_BLOCK_BYTES, strict=True)
    data = plain.getvalue()
    if codec == "null":
        return data
    framed = walk(data)
    metadata = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    parts = [_header(metadata, sync)]
    for block in framed.blocks:
        packed = _compress(data[block.start : block.end], codec)
        parts += [_long(block.rows), _long(len(packed)), packed, sync]
    return b"".join(parts)


def _has_field(schema: Any, path: Sequence[str]) -> bool:
    for part in path:
        fields = {field["name"]: field["type"] for field in _record(schema).get("fields", ())}
        if part not in fields:
            return False
        schema = fields[part]
    return True


def _record(schema: Any) -> Mapping[str, Any]:
    if isinstance(schema, list):
        schema = next((branch for branch in schema if isinstance(branch, dict)), {})
    return schema if isinstance(schema, dict) else {}


def _compress(data: bytes, codec: str) -> bytes:
    match codec:
        case "zstandard":
            return bytes(cramjam.zstd.compress(data))
        case "deflate":
            packer = zlib.compressobj(wbits=-15)
            return packer.compress(data) + packer.flush()
        case _:
            raise ValueError(f"cannot write codec {codec!r}")


def _header(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    parts = [MAGIC, _long(len(metadata))]
    for key, value in metadata.items():
        name = key.encode()
        parts += [_long(len(name)), name, _long(len(value)), value]
    return b"".join([*parts, _long(0), sync])


def _read_metadata(data: bytes, position: int) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    while True:
        count, position = read_long(data, position)
        if count == 0:
            return found, position
        if count < 0:
            _, position = read_long(data, position)
            count = -count
        for _ in range(count):
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            found[key.decode("utf-8", "replace")] = value


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = read_long(data, position)
    if size < 0 or position + size > len(data):
        raise ContainerError("the header is truncated")
    return data[position : position + size], position + size


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
