"""Parquet and ORC files that a tenant has written, read in a process of their own.

A few kilobytes of these may stand for any amount, and Arrow has no limit for that. So a child process
(`columnar_worker`) decodes, with little more memory than a real file of that size needs; a fault in a decoder ends that
process, not the service. It is kept for the next file. We send a line of JSON and the file, the child answers with what
the file has; we send a line with the wanted columns, or null for none, and it answers with rows, as Arrow streams, and
an end."""

from __future__ import annotations

import atexit
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from lakesweep.aio import TENANT
from lakesweep.formats import bounds
from lakesweep.formats.columnar_worker import END, ERROR, HEAD, LENGTH, OUT_OF_MEMORY, ROWS

ROWS_AT_ONCE = 65_536
_ROWS_AT_LEAST = 1_000_000
"""Rows that any file may have; a larger one has at least a byte for each row."""
_ROOM_BYTES = 256 * 1024 * 1024
_ROOM_PER_BYTE = 4
"""What decoding may take, besides the file itself: this, and so many times the file."""
_SECONDS = 60
_BYTES_PER_SECOND = 1024 * 1024
"""Processor time for any file, and how much longer a large one may take. Real ones need a fiftieth."""
_AT_ONCE = 8
_PER_TENANT = 4
_KEPT = 2
"""Processes at one time, those of one tenant, and those left waiting for the next file."""
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "VIRTUAL_ENV", "SYSTEMROOT", "TZ")
"""Environment variables that the child gets: no keys."""


class ColumnarFile:
    """One file that is open in a child process. A file that is not what it says raises a ValueError."""

    def __init__(self, worker: _Worker, data: bytes, kind: str) -> None:
        self._worker = worker
        self._stored = len(data)
        worker.send(kind, data)
        head = worker.answer(HEAD) or memoryview(b"")
        (length,) = struct.unpack_from("<Q", head)
        footer = json.loads(bytes(head[8 : 8 + length]))
        self.rows: int = footer["rows"]
        self.paths: list[str] = footer["paths"]
        """Parquet: every leaf, with all that it is nested in."""
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(head[8 + length :]))
        if self.rows > _ROWS_AT_LEAST + self._stored:
            raise ValueError(f"it has {self._stored} bytes and claims {self.rows} rows")
        if footer["largest_group"] > (allowed := bounds.allowance(self._stored)):
            raise bounds.TooMuch(allowed)

    def batches(self, columns: Sequence[str] | None = None, *, at_most: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, once. All together become no more than `at_most` bytes, or what metadata of this size may."""
        allowed = bounds.allowance(self._stored) if at_most is None else at_most
        self._worker.want({"columns": None if columns is None else list(columns), "rows": ROWS_AT_ONCE})
        taken = found = 0
        while (frame := self._worker.answer(ROWS, END)) is not None:
            taken += len(frame)
            if taken > allowed:
                raise bounds.TooMuch(allowed)
            with pa.ipc.open_stream(pa.py_buffer(frame)) as stream:
                batch = stream.read_next_batch()
            found += batch.num_rows
            yield batch
        if found != self.rows:
            raise ValueError(f"{found} rows read, its footer counts {self.rows}")

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        return pa.Table.from_batches(list(self.batches(columns)), None if self.rows else self.schema)


@contextmanager
def opened(data: bytes, kind: str = "parquet") -> Iterator[ColumnarFile]:
    """Open a file's bytes in a child process. Blocks; `kind` is parquet or orc."""
    with _slots_of(TENANT.get()), _slots:
        worker = _idle.pop() if _idle else _Worker()
        try:
            yield ColumnarFile(worker, data, kind)
        finally:
            worker.finish()
            if worker.usable and len(_idle) < _KEPT:
                _idle.append(worker)
            else:
                worker.end()


def resident() -> int:
    return sum(worker.resident() for worker in list(_all))


class _Worker:
    """A child process, and what is under way with it."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        # With Spark, modules may come from where only this interpreter looks.
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_ARENA_MAX": "1"}
        environment |= {"OPENBLAS_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lakesweep.formats.columnar_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
            )
        except OSError as exc:
            raise ValueError(f"no process could be started to decode it: {exc}") from exc
        self._room = 0
        self._busy = False
        """In the middle of a file: of no use to the next one."""
        self._waits = False
        """It waits for the names of the wanted columns."""
        self.usable = True
        _all.add(self)

    def send(self, kind: str, data: bytes) -> None:
        self._busy = True
        self._room = _ROOM_BYTES + (_ROOM_PER_BYTE + 1) * len(data)
        seconds = _SECONDS + len(data) // _BYTES_PER_SECOND
        request = {"kind": kind, "size": len(data), "memory": self._room, "seconds": seconds}
        self._send(json.dumps(request).encode() + b"\n", data)

    def want(self, wanted: dict[str, Any] | None) -> None:
        self._waits = False
        self._send(json.dumps(wanted).encode() + b"\n")

    def answer(self, *kinds: bytes) -> memoryview | None:
        """The next message, which must be of one of these kinds; None at the end."""
        kind, length = LENGTH.unpack(self._receive(LENGTH.size))
        if kind not in (*kinds, ERROR) or length > self._room:
            self.usable = False
            raise ValueError("its decoder failed in an unexpected way")
        payload = self._receive(length)
        if kind == ERROR:
            self._busy = False
            raise ValueError(str(payload, "utf-8", "replace"))
        if kind == END:
            self._busy = False
            return None
        self._waits = kind == HEAD
        return payload

    def finish(self) -> None:
        if self._waits:
            with suppress(ValueError):
                self.want(None)
        elif self._busy:
            self.usable = False

    def end(self) -> None:
        _all.discard(self)
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                cast("IO[bytes]", pipe).close()
        self._process.wait()

    def resident(self) -> int:
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _send(self, *parts: bytes) -> None:
        pipe = cast("IO[bytes]", self._process.stdin)
        try:
            for part in parts:
                pipe.write(part)
            pipe.flush()
        except OSError as exc:
            raise self._ended() from exc

    def _receive(self, length: int) -> memoryview:
        room = memoryview(bytearray(length))
        at = 0
        while at < length:
            got = cast("IO[bytes]", self._process.stdout).readinto(room[at:])  # type: ignore[attr-defined]
            if not got:
                raise self._ended()
            at += got
        return room.toreadonly()

    def _ended(self) -> ValueError:
        self.usable = False
        code = self._process.wait()
        if code == OUT_OF_MEMORY:
            return ValueError(f"decoding it takes more than the {self._room >> 20} MiB allowed for a file of its size")

        why = "it takes too much memory or time, or is damaged"
        return ValueError(f"the process that decoded it has ended ({code}): {why}")


def _slots_of(tenant: str) -> threading.BoundedSemaphore:
    """A tenant whose files take long to decode delays only itself."""
    with _tenants_lock:
        return _tenants.setdefault(tenant, threading.BoundedSemaphore(_PER_TENANT))


_slots = threading.BoundedSemaphore(_AT_ONCE)
_tenants: dict[str, threading.BoundedSemaphore] = {}
_tenants_lock = threading.Lock()
_idle: list[_Worker] = []
_all: set[_Worker] = set()


def _forget() -> None:
    """In a process that was forked: the children are its parent's."""
    global _slots, _tenants_lock
    _slots, _tenants_lock = threading.BoundedSemaphore(_AT_ONCE), threading.Lock()
    _tenants.clear()
    _idle.clear()
    _all.clear()


@atexit.register
def _end_all() -> None:
    for worker in list(_all):
        worker.end()


os.register_at_fork(after_in_child=_forget)
