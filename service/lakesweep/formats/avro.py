"""Avro object containers: framing, codecs, and the guard against short reads.

A container cut at a block end, or read by a decoder that ignores damage, gives fewer rows without any error,
and a row that is not seen is a live file that gets deleted. So every read starts with a walk over the block
headers that checks each sync marker and the exact end and adds up the rows; whoever decodes then compares.
What the walk cannot see (a cut exactly behind a block) the caller catches with the recorded length and count.
"""

from __future__ import annotations

import io
import json
import secrets
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import cramjam
import fastavro
import pyarrow as pa

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_VARINT_MAX_BYTES = 10
_BLOCK_BYTES = 64_000
"""Uncompressed size of the blocks we write; Java's Avro uses the same."""
FAST_FROM_BYTES = 24_000
"""Uncompressed. Below this the fixed cost of the fast reader is larger than what it saves."""

_ENDLESS = 1 << 40
"""More rows than any block can hold."""


class ContainerError(ValueError):
    """The bytes are not one whole, well-formed Avro container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One data block: how many rows, and where its compressed bytes are."""

    rows: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The frame of a container whose every sync marker was checked."""

    schema: Any
    metadata: Mapping[str, bytes]
    codec: str
    sync: bytes
    body: int
    """Where the header ends and the blocks begin."""
    blocks: tuple[Block, ...]

    @property
    def rows(self) -> int:
        """How many rows the block headers promise."""
        return sum(block.rows for block in self.blocks)


def walk(data: bytes) -> Container:
    """Read the header and step over every block; raise ContainerError unless all of it is in order."""
    if data[:4] != MAGIC:
        raise ContainerError("not an Avro container")
    metadata, position = _read_metadata(data, 4)
    sync = data[position : position + _SYNC_BYTES]
    position += _SYNC_BYTES
    if len(sync) != _SYNC_BYTES or "avro.schema" not in metadata:
        raise ContainerError("the header is cut off")
    body, blocks = position, []
    while position < len(data):
        rows, position = _read_long(data, position)
        size, position = _read_long(data, position)
        end = position + size
        if rows < 0 or size < 0 or data[end : end + _SYNC_BYTES] != sync:
            raise ContainerError(f"the block at byte {position} is cut off or damaged")
        blocks.append(Block(rows=rows, start=position, end=end))
        position = end + _SYNC_BYTES
    try:
        schema = json.loads(metadata["avro.schema"])
    except ValueError as exc:
        raise ContainerError(f"the schema is not JSON: {exc}") from exc
    codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
    return Container(schema=schema, metadata=metadata, codec=codec, sync=sync, body=body, blocks=tuple(blocks))


def read_records(data: bytes, container: Container | None = None) -> list[dict[str, Any]]:
    """Every record in full, as dicts. For small containers and for those that will be written again."""
    container = container or walk(data)
    return decode_rows(inflate(data, container), container.schema, container.rows)


def decode_rows(blocks: Sequence[bytes], schema: Any, promised: int, wanted: Any = None) -> list[dict[str, Any]]:
    """The records of uncompressed blocks, by fastavro: in full, or with the fields of `wanted`, which is the same
    schema with fields left out. They must be as many as promised and end where the bytes end.

    They are read as one array (a count, the items, a zero), which spares the reader most of its work for each row.
    """
    framed = b"".join([_long(promised) if promised else b"", *blocks, _long(0)])
    stream = io.BytesIO(framed)
    written = {"type": "array", "items": schema}
    read = None if wanted is None else {"type": "array", "items": wanted}
    try:
        records = cast("list[dict[str, Any]]", fastavro.schemaless_reader(stream, written, read))
    except Exception as exc:  # fastavro raises whatever a broken byte leads it to
        raise ContainerError(f"its rows cannot be decoded ({type(exc).__name__}: {exc})") from exc
    if len(records) != promised or stream.tell() != len(framed):
        raise ContainerError(f"there are bytes left behind the {promised} rows that the block headers promise")
    return records


def values(records: Sequence[Mapping[str, Any]], path: Sequence[str]) -> list[Any]:
    """One field of every record; null where a record on the way to it is."""
    found: list[Any] = list(records)
    for part in path:
        found = [None if one is None else one.get(part) for one in found]
    return found


def is_large(blocks: Sequence[bytes]) -> bool:
    """Does the fast reader pay for these uncompressed blocks?"""
    return sum(map(len, blocks)) >= FAST_FROM_BYTES


def read_columns(data: bytes, columns: Mapping[str, Sequence[str]], container: Container | None = None) -> pa.Table:
    """Some columns, by the fast reader: `{name: path of field names}`. Fields that the file lacks are null.

    Falls back to the slow reader for what the fast one cannot read; never returns fewer rows than promised.
    """
    container = container or walk(data)
    present = {name: path for name, path in columns.items() if _has_field(container.schema, path)}
    blocks = inflate(data, container)
    table: pa.Table | None = None
    if present and is_large(blocks):
        schema, places = _laid_flat(container.schema)
        wanted = {name: places[tuple(path)] for name, path in present.items() if tuple(path) in places}
        if wanted.keys() == present.keys():
            table = decode_columns(blocks, schema, container.rows, wanted)
    if table is None:
        records = decode_rows(blocks, container.schema, container.rows)
        table = pa.table({name: values(records, path) for name, path in present.items()})
        if not present:
            table = pa.table({}).append_column("_", pa.nulls(container.rows))
    if table.num_rows != container.rows:
        raise ContainerError(f"{table.num_rows} rows decoded, the block headers promise {container.rows}")
    for name in columns:
        if name not in present:
            table = table.append_column(name, pa.nulls(container.rows))
    return table.select(list(columns))


def inflate(data: bytes, container: Container) -> list[bytes]:
    """The rows of each block, uncompressed."""
    try:
        return [_decompress(data[block.start : block.end], container.codec) for block in container.blocks]
    except ContainerError:
        raise
    except Exception as exc:  # each codec has errors of its own
        raise ContainerError(f"a block cannot be uncompressed ({type(exc).__name__}: {exc})") from exc


def decode_columns(blocks: Sequence[bytes], schema: Any, promised: int, columns: Mapping[str, str]) -> pa.Table | None:
    """Columns of uncompressed blocks, by DataFusion: `{name: field of the outermost record}`. None for what it cannot
    read.

    It reads files only, so the bytes go through one in memory where the machine has such a place. And it must not see
    the block headers: where a block holds more bytes than its rows take, it never returns. So all rows are put into
    one block that claims more rows than it can hold, and it is told to stop after those that are promised: bytes that
    are left over then turn up as a further row or as an error. `schema` may be any that encodes rows alike.
    """
    from datafusion import SessionConfig, SessionContext, col  # noqa: PLC0415 - heavy, and not every table needs it

    header = _header({"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}, bytes(_SYNC_BYTES))
    size = sum(map(len, blocks))
    with tempfile.NamedTemporaryFile(suffix=".avro", dir=_memory_directory()) as file:
        file.writelines([header, _long(_ENDLESS), _long(size), *blocks, bytes(_SYNC_BYTES)])
        file.flush()
        try:
            # A session of its own for each file: a shared one would remember every file it has seen.
            session = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(promised))
            wanted = [col(f'"{field}"').alias(name) for name, field in columns.items()]
            return cast("pa.Table", session.read_avro(file.name).select(*wanted).to_arrow_table())
        except Exception:  # noqa: BLE001 - whatever it cannot read, fastavro judges
            return None


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


def _memory_directory() -> str | None:
    shared = Path("/dev/shm")  # noqa: S108 - only the place; the file itself is made safely
    return str(shared) if shared.is_dir() else None


def _laid_flat(schema: Any) -> tuple[Any, dict[tuple[str, ...], str]]:
    """A schema of the same rows with records inside records laid open, and what each field is called there.

    Avro writes both alike, but the fast reader skips only whole fields of the outermost record. What is inside a record
    that may be null has no place there, and must not: where that record is null, the fast reader makes up a value.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return schema, {}
    fields: list[dict[str, Any]] = []
    places: dict[tuple[str, ...], str] = {}

    def lay(record: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for field in record.get("fields", ()):
            here, inner = (*path, field["name"]), field["type"]
            if isinstance(inner, dict) and inner.get("type") == "record":
                lay(inner, here)
                continue
            places[here] = f"field_{len(fields)}"
            fields.append({"name": places[here], "type": inner})

    lay(schema, ())
    return {"type": "record", "name": "row", "fields": fields}, places


def _has_field(schema: Any, path: Sequence[str]) -> bool:
    for part in path:
        fields = {field["name"]: field["type"] for field in _record(schema).get("fields", ())}
        if part not in fields:
            return False
        schema = fields[part]
    return True


def _record(schema: Any) -> Mapping[str, Any]:
    """The record inside a schema that may be a union with null."""
    if isinstance(schema, list):
        schema = next((branch for branch in schema if isinstance(branch, dict)), {})
    return schema if isinstance(schema, dict) else {}


def _decompress(data: bytes, codec: str) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            return zlib.decompress(data, wbits=-15)
        case "zstandard":
            return bytes(cramjam.zstd.decompress(data))
        case "snappy":
            plain = bytes(cramjam.snappy.decompress_raw(data[:-4]))
            if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
                raise ContainerError("a block's checksum does not match")
            return plain
        case "bzip2":
            return bytes(cramjam.bzip2.decompress(data))
        case "xz":
            return bytes(cramjam.xz.decompress(data))
        case _:
            raise ContainerError(f"unknown codec {codec!r}")


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
    """The header's map of bytes, in one or more blocks."""
    found: dict[str, bytes] = {}
    while True:
        count, position = _read_long(data, position)
        if count == 0:
            return found, position
        if count < 0:
            _, position = _read_long(data, position)
            count = -count
        for _ in range(count):
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            found[key.decode("utf-8", "replace")] = value


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = _read_long(data, position)
    if size < 0 or position + size > len(data):
        raise ContainerError("the header is cut off")
    return data[position : position + size], position + size


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint."""
    value = 0
    for index in range(_VARINT_MAX_BYTES):
        if position >= len(data):
            raise ContainerError("cut off in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise ContainerError("a number is too long")


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
