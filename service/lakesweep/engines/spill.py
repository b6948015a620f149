"""Write Arrow batches from the event loop to a Parquet file, in a thread, while the next ones arrive.

Memory stays bounded: one chunk is being filled, one may wait and one is being written; `add` waits otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

CHUNK_ROWS = 131_072
"""A chunk with at least this many rows is written, as one row group."""

_FEW_TEXTS = ("role", "verdict", "kind", "reason")


class Spill:
    """A file being written. Several tasks may `add`; the file is complete when the block ends without an error."""

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
        """Add a batch; waits if the disk lags behind."""
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
