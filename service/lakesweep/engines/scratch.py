"""A directory for one plan's intermediate files, removed when the plan is done, whatever happens; and those files.

A killed process leaves its directory behind. The next process to create one, or housekeeping, finds it by its lock,
which died with its owner, and removes it.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Self, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

CHUNK_ROWS = 131_072
"""A chunk with at least this many rows is written, as one row group."""
_FEW_TEXTS = ("role", "verdict", "kind", "reason")
_PREFIX = "plan-"
_PLAN = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}")
_LOCK = ".lock"
AT_ONCE = timedelta(0)


@asynccontextmanager
async def scratch(parent: Path, abandoned_after: timedelta = AT_ONCE) -> AsyncIterator[Path]:
    """An empty directory below `parent` for as long as the block runs. First what killed processes left there is
    removed, see `remove_abandoned`."""
    directory = parent / f"{_PREFIX}{uuid.uuid4().hex}"
    lock = await asyncio.to_thread(_make, directory, abandoned_after)
    try:
        yield directory
    finally:
        await asyncio.to_thread(_remove, directory, lock)


async def remove_abandoned(parent: Path, abandoned_after: timedelta = AT_ONCE) -> None:
    """Remove the directories of killed processes. Those in use stay. Where several machines mount the directory, the
    locks of other machines may be invisible, so there only old ones are removed."""
    await asyncio.to_thread(_remove_abandoned, parent, abandoned_after)


def _make(directory: Path, abandoned_after: timedelta) -> TextIO:
    directory.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(directory.parent, abandoned_after)
    lock = directory.with_suffix(_LOCK).open("x")
    # The lock comes before the directory: no directory exists without a live owner's lock.
    fcntl.flock(lock, fcntl.LOCK_EX)
    directory.mkdir()
    return lock


def _remove(directory: Path, lock: TextIO) -> None:
    with lock:
        shutil.rmtree(directory, ignore_errors=True)
        directory.with_suffix(_LOCK).unlink(missing_ok=True)


def _remove_abandoned(parent: Path, abandoned_after: timedelta) -> None:
    for path in parent.glob(f"{_PREFIX}*{_LOCK}"):
        if not _PLAN.fullmatch(path.stem):
            continue
        # An OSError here means that the lock is held, or that another process was faster.
        with suppress(OSError), path.open() as lock:
            if abandoned_after and time.time() - path.stat().st_mtime < abandoned_after.total_seconds():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)


class Spill:
    """A Parquet file being written from the event loop, in a thread, while the next batches arrive. Several tasks may
    `add`; the file is complete when the block ends without an error.

    Memory stays bounded: one chunk is being filled, one may wait and one is being written; `add` waits otherwise.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        threads: Executor,
        prepare: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda chunk: chunk,
    ) -> None:
        self._writer = scratch_writer(path, schema)
        self._threads = threads
        self._prepare = prepare
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._turn = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None

    async def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        if self._rows >= CHUNK_ROWS:
            await self._flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self._flush()
                await self._written()
            elif self._writing is not None:
                await asyncio.wait([self._writing])
        finally:
            self._writer.close()

    async def _flush(self) -> None:
        async with self._turn:
            chunk, self._held, self._rows = self._held, [], 0
            if not chunk:
                return
            await self._written()
            loop = asyncio.get_running_loop()
            self._writing = loop.run_in_executor(self._threads, self._write, chunk)

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        chunk = self._prepare(pa.concat_batches(batches))
        if chunk.num_rows:
            self._writer.write_batch(chunk, row_group_size=chunk.num_rows)


def scratch_writer(path: Path, schema: pa.Schema, *, checked: bool = False) -> pq.ParquetWriter:
    """A Parquet writer for files that are read once or twice: what neighbours share is left out of addresses, and
    nothing is compressed, which would take longer than writing and reading the rest. `checked` adds checksums."""
    addresses = [name for name in ("path", "address") if name in schema.names]
    return pq.ParquetWriter(
        path,
        schema,
        compression="none",
        use_dictionary=[name for name in _FEW_TEXTS if name in schema.names],
        column_encoding=dict.fromkeys(addresses, "DELTA_BYTE_ARRAY"),
        write_statistics=["role"] if "role" in schema.names else False,
        write_page_checksum=checked,
    )
