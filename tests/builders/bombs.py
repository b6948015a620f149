"""Small files that become large ones. Run as a module, it reads each of them with little memory to spare."""

from __future__ import annotations

import bz2
import io
import json
import resource
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep.cleanup.ports import ReferenceSource
from lakesweep.formats import avro, bounded
from lakesweep.formats.delta import checkpoint
from lakesweep.formats.iceberg import decode, metadata
from lakesweep.formats.paimon import decode as paimon
from lakesweep.formats.paimon import snapshots
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

SPARE = 384 * 1024 * 1024
"""Bytes that reading may take beyond what the process has by then."""
BOMB = 1_000_000_000
PLACE = Location.parse("s3://b/t/m")
CHECKPOINT = "s3://b/t/_delta_log/00000000000000000001.checkpoint.parquet"
FILE = [{"name": "file_path", "type": "string", "field-id": 100}, {"name": "rest", "type": "bytes", "field-id": 999}]
ENTRY = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int", "field-id": 0},
        {"name": "data_file", "field-id": 2, "type": {"type": "record", "name": "r2", "fields": FILE}},
    ],
}


LISTED = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        {"name": "manifest_path", "type": "string", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "rest", "type": "bytes", "field-id": 999},
    ],
}


def source(format: FormatName) -> ReferenceSource:
    return ReferenceSource(location=PLACE, format=format, kind="manifest", retained=True)


def container(codec: str, packed: bytes, schema: Any = ENTRY, rows: int = 1) -> bytes:
    sync = b"s" * 16
    head = avro._header({"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}, sync)
    return b"".join([head, avro._long(rows), avro._long(len(packed)), packed, sync])


def record(kind: Any) -> Any:
    return {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}


def deflated(size: int = BOMB, wbits: int = -15) -> bytes:
    """Zeros, compressed once and then repeated. The checksum at the end is wrong, but nobody should get there."""
    packer = zlib.compressobj(wbits=wbits)
    head = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"".join([head, *[again] * ((size >> 20) - 1), packer.flush()])


def bzip2() -> bytes:
    packer = bz2.BZ2Compressor(1)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(100)), packer.flush()])


def zstandard() -> bytes:
    out = io.BytesIO()
    stream = pa.CompressedOutputStream(pa.PythonFile(out, "w"), "zstd")
    for _ in range(BOMB >> 20):
        stream.write(bytes(1 << 20))
    stream.flush()
    return out.getvalue()


def snappy() -> bytes:
    """Says of itself that it becomes 256 MB."""
    return b"\xff\xff\xff\x7f" + bytes(cramjam.snappy.compress_raw(bytes(1000)))[2:] + bytes(4)


def manifest(codec: str, block: bytes) -> Callable[[], object]:
    data = container(codec, block)
    return lambda: decode.decode(source(FormatName.ICEBERG), data)


def manifest_list() -> Callable[[], object]:
    data = container("zstandard", zstandard(), LISTED)
    return lambda: decode.decode_list(PLACE.raw, data, {})


def paimon_manifest() -> Callable[[], object]:
    data = container("zstandard", zstandard())
    return lambda: paimon.decode(source(FormatName.PAIMON), data)


def rows_of_one_byte() -> Callable[[], object]:
    data = container("deflate", deflated(60_000_000), record(["null", "long"]), (60_000_000 >> 20) << 20)
    return lambda: avro.read_records(data)


def lists_of_nothing() -> Callable[[], object]:
    data = container("null", avro._long(1 << 40), record({"type": "array", "items": "null"}))
    return lambda: avro.read_records(data)


def metadata_of(data: bytes) -> Callable[[], object]:
    return lambda: metadata.parse(PLACE.raw, data)


def many_small_objects() -> Callable[[], object]:
    data = b"[" + b"{}," * 8_000_000 + b"{}]"

    def read() -> object:
        bounded.allow(256 * 1024 * 1024)
        try:
            return metadata.parse(PLACE.raw, data)
        finally:
            bounded.allow(2 * 1024**3)

    return read


def checkpoint_of(rows: pa.Table, times: int) -> Callable[[], object]:
    out = io.BytesIO()
    with pq.ParquetWriter(out, rows.schema, use_dictionary=False, compression="zstd") as writer:
        for _ in range(times):
            writer.write_table(rows)
    data = out.getvalue()
    return lambda: checkpoint.verify(data, PLACE, CHECKPOINT)


def large_row_groups() -> Callable[[], object]:
    path = pa.struct([("path", pa.string())])
    return checkpoint_of(pa.table({"add": pa.array([{"path": "x" * 1_000_000}] * 100, path)}), 2)


def very_many_rows() -> Callable[[], object]:
    nothing = pa.nulls(1_000_000, pa.struct([("path", pa.string())]))
    return checkpoint_of(pa.table({"add": nothing}), 4)


BOMBS: dict[str, Callable[[], Callable[[], object]]] = {
    "deflate manifest": lambda: manifest("deflate", deflated()),
    "zstd manifest": lambda: manifest("zstandard", zstandard()),
    "bzip2 manifest": lambda: manifest("bzip2", bzip2()),
    "snappy manifest": lambda: manifest("snappy", snappy()),
    "zstd manifest list": manifest_list,
    "Paimon manifest": paimon_manifest,
    "rows of one byte": rows_of_one_byte,
    "lists of nothing": lists_of_nothing,
    "gzip metadata": lambda: metadata_of(deflated(wbits=31)),
    "deep JSON": lambda: metadata_of(b"[" * 2_000_000),
    "deep Paimon snapshot": lambda: lambda: snapshots.parse_json(b'{"a":' * 500_000),
    "JSON of many small objects": many_small_objects,
    "Parquet checkpoint": large_row_groups,
    "Parquet checkpoint of very many rows": very_many_rows,
}


def main() -> None:
    """Print as JSON what was said of each."""
    pa.set_memory_pool(pa.system_memory_pool())
    reads = {kind: make() for kind, make in BOMBS.items()}
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    told = {}
    for kind, read in reads.items():
        try:
            read()
            told[kind] = "it was read"
        except (Unreadable, ValueError) as exc:
            told[kind] = f"refused: {str(exc)[:300]}"
        except (MemoryError, pa.ArrowMemoryError):
            told[kind] = "it took all the memory"
    print(json.dumps(told))


if __name__ == "__main__":
    main()
