"""Small files that become large ones. Run as a module, it reads each of them with little memory to spare."""

from __future__ import annotations

import bz2
import io
import json
import resource
import sys
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from lakesweep.engines.inventory import rows
from lakesweep.engines.inventory.lists import DataFile, FileList, Kind
from lakesweep.formats import avro, bounds, columnar
from lakesweep.formats.delta import checkpoint
from lakesweep.formats.iceberg import decode, metadata
from lakesweep.formats.paimon import decode as paimon
from lakesweep.formats.paimon import manifests, snapshots
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource

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
        bounds.allow(256 * 1024 * 1024)
        try:
            return metadata.parse(PLACE.raw, data)
        finally:
            bounds.allow(2 * 1024**3)

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


PATH = pa.struct([("path", pa.string())])


def repeated(size: int, rows: int) -> pa.Array:
    """One text, so many times, in little memory."""
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    return pa.DictionaryArray.from_arrays(zeros, ["x" * size])


def parquet_of_one_text(column: str, *, store_schema: bool = False) -> bytes:
    """A dictionary of one text of a megabyte that 900,000 rows point at. Its footer is honest: it tells of the one."""
    texts = repeated(1_000_000, 900_000)
    outer, _, inner = column.partition(".")
    table = pa.table({outer: pa.StructArray.from_arrays([texts], [inner]) if inner else texts})
    return parquet(table, store_schema=store_schema)


def inventory_of_one_text() -> bytes:
    count = 900_000
    sizes = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(bytes(8 * count))])
    times = sizes.cast(pa.timestamp("ms", tz="UTC"))
    return parquet(pa.table({"path": repeated(1_000_000, count), "size": sizes, "last_modified": times}))


def parquet(table: pa.Table, *, store_schema: bool = False) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, dictionary_pagesize_limit=1 << 24, store_schema=store_schema, compression="zstd")
    return out.getvalue()


def varint(number: int, width: int = 0) -> bytes:
    """As Thrift writes it, filled up to so many bytes with what means nothing."""
    digits = [number >> at & 0x7F for at in range(0, 63, 7)]
    length = max(width, *(at + 1 for at, digit in enumerate(digits) if digit), 1)
    return bytes([digit | 0x80 for digit in digits[: length - 1]] + [digits[length - 1]])


def parquet_that_lies(size: int = 400_000_000) -> bytes:
    """One page of so many bytes, and a footer that says a thousand."""
    out = io.BytesIO()
    ends = pa.py_buffer((0).to_bytes(4, "little") + size.to_bytes(4, "little"))
    text = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(bytes(size))])
    table = pa.table({"add": pa.StructArray.from_arrays([text], ["path"])})
    pq.write_table(table, out, use_dictionary=False, compression="zstd", write_statistics=False)
    data = out.getvalue()
    found = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    head, footer = data[:start], data[start:]
    for told in {found.total_byte_size, found.column(0).total_uncompressed_size}:
        true = varint(2 * told)
        assert true in footer
        footer = footer.replace(true, varint(2000, len(true)))
    return head + footer


def parquet_of_many_columns(groups: int = 10, columns: int = 200_000) -> bytes:
    """A footer of column chunks of which nothing is said: three bytes each, and hundreds once they are read."""
    schema = b"\x19\x1c\x48\x06schema\x15\x00\x00"
    group = b"\x19\xfc" + varint(columns) + b"\x26\x00\x00" * columns + b"\x16\x00\x16\x00\x00"
    footer = b"\x15\x02" + schema + b"\x16\x00" + bytes([0x19, groups << 4 | 12]) + group * groups + b"\x00"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def orc_of_one_text() -> bytes:
    out = io.BytesIO()
    texts = pa.table({"_FILE_NAME": pa.array(["x" * 1_000_000] * 100)})
    with orc.ORCWriter(out, compression="zstd", dictionary_key_size_threshold=1.0) as writer:
        for _ in range(9):
            writer.write(texts)
    return out.getvalue()


def checkpoint_in(data: bytes) -> None:
    checkpoint.verify(data, PLACE, CHECKPOINT)


def inventory_in(data: bytes) -> object:
    listed = DataFile(location=PLACE, size_bytes=len(data))
    files = FileList(address=PLACE.raw, created_at=datetime.now(UTC), kind=Kind.PLAIN_PARQUET, files=(listed,))
    return list(rows.read(files, listed, data, [PLACE]))


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
COLUMNAR: dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]] = {
    "checkpoint of one text": (lambda: parquet_of_one_text("add.path"), checkpoint_in),
    "checkpoint of one text that stays a dictionary": (
        lambda: parquet_of_one_text("add.path", store_schema=True),
        checkpoint_in,
    ),
    "checkpoint whose footer lies": (parquet_that_lies, checkpoint_in),
    "checkpoint of many columns": (parquet_of_many_columns, checkpoint_in),
    "Paimon list of one text": (lambda: parquet_of_one_text("_FILE_NAME"), manifests.read_list),
    "Paimon list in ORC of one text": (orc_of_one_text, manifests.read_list),
    "inventory of one text": (inventory_of_one_text, inventory_in),
}
"""Those that Arrow decodes: how to make one, and how to read it."""


def main() -> None:
    """Print as JSON what was said of each."""
    pa.set_memory_pool(pa.system_memory_pool())
    reads = {kind: make() for kind, make in BOMBS.items()}
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps({kind: said_of(read) for kind, read in reads.items()}))


def read_columnar(directory: Path) -> None:
    """Print what was said of each file, and the memory that this process and its largest child took."""
    before = peak(resource.RUSAGE_SELF)
    told = {}
    for kind, (_, read) in COLUMNAR.items():
        told[kind] = said_of(partial(read, (directory / kind).read_bytes()))
    columnar._end_all()  # only children that have ended are counted
    grown = peak(resource.RUSAGE_SELF) - before
    print(json.dumps({"told": told, "grown": grown, "child": peak(resource.RUSAGE_CHILDREN)}))


def said_of(read: Callable[[], object]) -> str:
    try:
        read()
    except (Unreadable, ValueError) as exc:
        return "it took all the memory" if "malloc of size" in str(exc) else f"refused: {str(exc)[:300]}"
    except (MemoryError, pa.ArrowMemoryError):
        return "it took all the memory"
    return "it was read"


def peak(of: int) -> int:
    return resource.getrusage(of).ru_maxrss * 1024


if __name__ == "__main__":
    read_columnar(Path(sys.argv[1])) if sys.argv[1:] else main()
