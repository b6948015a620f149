"""The process that opens a tenant's Parquet and ORC files, with a hard limit on its memory and its processor time.
Started by `columnar`, which says how the two talk. Imports Arrow and nothing of ours: it has no settings, no keys and
no storage. It serves one file after another until its input ends."""

from __future__ import annotations

import gc
import json
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

LENGTH = struct.Struct("<cQ")
"""What precedes every message: its kind, and how many bytes follow."""
HEAD, ROWS, END, ERROR = b"h", b"r", b"e", b"x"
FRAME_BYTES = 16 * 1024 * 1024
"""About how much is handed over at a time."""
OUT_OF_MEMORY = 3
"""The exit code of a process that could get no more."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the process that started us, which ends us too
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.freeze()  # modules stay: looking for garbage among them finds none
    _go_first()
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        _limit(request)
        try:
            _serve(request, source, target)
        except (MemoryError, pa.ArrowMemoryError):
            sys.exit(OUT_OF_MEMORY)  # what is left of the heap is of no use to the next file
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as exc:
            if isinstance(exc, BrokenPipeError):
                return
            if "bad_alloc" in str(exc):
                sys.exit(OUT_OF_MEMORY)
            _send(target, ERROR, str(exc)[:2000].encode())


def _serve(request: dict[str, Any], source: BinaryIO, target: BinaryIO) -> None:
    data = source.read(request["size"])
    file = _Orc(data) if request["kind"] == "orc" else _Parquet(data)
    _send(target, HEAD, file.head())
    wanted = json.loads(source.readline())
    if wanted is None:
        return
    for batch in file.batches(wanted["columns"], wanted["rows"]):
        for piece in _pieces(batch):
            _send(target, ROWS, _packed(piece))
    _send(target, END)


class _Parquet:
    def __init__(self, data: bytes) -> None:
        self._file = pq.ParquetFile(pa.BufferReader(data))

    def head(self) -> bytes:
        found = self._file.metadata
        groups = [found.row_group(number) for number in range(found.num_row_groups)]
        sizes = [sum(group.column(at).total_uncompressed_size for at in range(group.num_columns)) for group in groups]
        largest = max([0, *sizes, *(group.total_byte_size for group in groups)])
        paths = [column.path for column in self._file.schema]
        return _described(self._file.schema_arrow, rows=found.num_rows, largest=largest, paths=paths)

    def batches(self, columns: list[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._file.iter_batches(rows, columns=columns, use_threads=False):
            yield batch.cast(_plain(batch.schema))


class _Orc:
    def __init__(self, data: bytes) -> None:
        self._file = orc.ORCFile(pa.BufferReader(data))

    def head(self) -> bytes:
        return _described(self._file.schema, rows=self._file.nrows, largest=0, paths=[])

    def batches(self, columns: list[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        for stripe in range(self._file.nstripes):
            read = self._file.read_stripe(stripe, columns)
            read = read.cast(_plain(read.schema))
            yield from (read.slice(first, rows) for first in range(0, read.num_rows, rows))


def _described(schema: pa.Schema, *, rows: int, largest: int, paths: list[str]) -> bytes:
    header = json.dumps({"rows": rows, "largest_group": largest, "paths": paths}).encode()
    fields: bytes = _plain(schema).serialize().to_pybytes()
    return struct.pack("<Q", len(header)) + header + fields


def _plain(schema: pa.Schema) -> pa.Schema:
    """With values in the place of dictionaries, which are small only until somebody looks into them."""
    return pa.schema([_plain_field(field) for field in schema], metadata=schema.metadata)


def _plain_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_dictionary(kind):
        return _plain_field(field.with_type(kind.value_type))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_plain_field(inner) for inner in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_plain_field(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field)))
    if any(of(kind) for of in (pa.types.is_nested, pa.types.is_run_end_encoded)) or isinstance(kind, pa.ExtensionType):
        raise TypeError(f"its column {field.name} has the type {kind}, which metadata never has")
    return field


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch of a few long rows in several, so that their reader need not hold all."""
    parts = batch.nbytes // FRAME_BYTES + 1
    step = max(1, -(-batch.num_rows // parts))
    yield from (batch.slice(first, step) for first in range(0, batch.num_rows, step))


def _packed(batch: pa.RecordBatch) -> memoryview:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(out.getvalue())


def _send(target: BinaryIO, kind: bytes, payload: bytes | memoryview = b"") -> None:
    target.write(LENGTH.pack(kind, len(payload)))
    target.write(payload)
    target.flush()


def _limit(request: dict[str, Any]) -> None:
    """From what this process has now. The soft limits: they are set again for the next file."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + request["memory"])
    _lower(resource.RLIMIT_CPU, int(time.process_time()) + request["seconds"])


def _lower(what: int, wanted: int) -> None:
    _, most = resource.getrlimit(what)
    resource.setrlimit(what, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _go_first() -> None:
    """Where the kernel has to end a process for its memory, it takes this one and not the service."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


if __name__ == "__main__":
    main()
