"""The engine inside this process: asyncio lists and fetches, threads decode, DuckDB joins.

List, then mark, then read, then judge, then look again for what seems to be missing. The listing is complete before the
table is read, so a commit in between counts as live. Memory is bounded whatever the table's size, and the event loop
only passes batches on. It reads storage, and writes only its scratch directory and the plan.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakesweep import aio
from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import INVENTORY_SCHEMA
from lakesweep.engines import common
from lakesweep.engines.duckdb_plan import SEEN_SCHEMA, Detection
from lakesweep.engines.listing import Listing, Shard, of_roots, planned
from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.engines.references import ReferencePhase
from lakesweep.engines.scratch import Spill, scratch
from lakesweep.engines.sources import SourceReader
from lakesweep.model.errors import EngineFailed
from lakesweep.model.files import OrphanPlan
from lakesweep.model.table import FormatName
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import Decode, ReferenceSource
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import MatchBy

T = TypeVar("T")

_NO_DISK = "max_temp_directory_size"
"""DuckDB's error when the disk has no room for what it spills."""


class InProcessEngine:
    """Finds orphans in this process. One engine serves many tables, also concurrently."""

    name = "inprocess"

    def __init__(
        self,
        *,
        storage: Storage,
        decoder: Callable[[FormatName], Decode],
        cache: FingerprintCache | None,
        scratch_dir: Path,
        memory_limit: str,
        concurrency: int = 16,
        threads: int | None = None,
    ) -> None:
        self._storage = storage
        self._scratch_dir = scratch_dir
        self._memory_limit = memory_limit
        self._concurrency = concurrency
        self._cores = threads or os.cpu_count() or 1
        self._decoders = ThreadPoolExecutor(self._cores, thread_name_prefix="decode")
        self._workers = ThreadPoolExecutor(thread_name_prefix="engine")
        self._cache = cache
        self._reader = SourceReader(
            storage=storage, decoder=decoder, cache=cache, concurrency=concurrency, threads=self._decoders
        )

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        with self._own_errors():
            async with scratch(self._scratch_dir) as directory:
                work = Detection(directory, memory_limit=self._memory_limit, threads=self._cores)
                try:
                    return await self._find(job, work)
                finally:
                    await self._in_thread(work.close)

    def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncGenerator[tuple[ReferenceSource, pa.RecordBatch]]:
        return self._reader.references(sources)

    async def aclose(self) -> None:
        for pool in (self._decoders, self._workers):
            await asyncio.to_thread(partial(pool.shutdown, cancel_futures=True))

    async def _find(self, job: OrphanJob, work: Detection) -> OrphanPlan:
        watch = _Stopwatch()
        match_by = job.layout.match_by
        listing = await planned(job, self._storage)
        await self._list(listing, work.inventory, INVENTORY_SCHEMA, lambda rows: addresses.inventory(rows, match_by))
        listed: int = await self._in_thread(lambda: pq.read_metadata(work.inventory).num_rows)
        listing.check_rows(listed)
        watch.lap("list")
        marked = await job.mark()
        watch.lap("mark")
        phase = ReferencePhase(
            job=job,
            references=marked.references,
            work=work,
            reader=self._reader,
            cache=self._cache,
            threads=self._workers,
        )
        await phase.read()
        watch.lap("read")
        await self._run(work, partial(work.judge, job.layout, job.cutoff))
        watch.lap("judge")
        if common.looks_for_missing(job):
            await self._find_missing(job, work, phase, listed)
        else:
            await self._run(work, work.look_for_none)
        watch.lap("look_again")
        findings = await self._run(work, work.confirm)
        digest = await self._run(work, partial(work.write_rows, job.rows_path))
        watch.lap("write")
        return common.assemble(
            job, listing, marked, findings, skipped=phase.skipped, digest=digest, engine=self.name, timings=watch.laps
        )

    async def _find_missing(self, job: OrphanJob, work: Detection, phase: ReferencePhase, listed: int) -> None:
        lost = await self._run(work, work.find_lost)
        if lost:
            await phase.recall(lost)
            if not await self._run(work, work.explain_lost):
                await phase.invalidate_and_fail()
        await self._look_again(job, work, listed)

    async def _list(
        self,
        listing: Listing,
        target: Path,
        schema: pa.Schema,
        prepare: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        """Write everything that is stored to a file. Returns only when every shard is complete."""
        places = asyncio.Semaphore(listing.at_once)
        async with Spill(target, schema, self._workers, prepare) as spill:
            await aio.together(self._list_shard(shard, spill, places) for shard in listing.shards)

    async def _list_shard(self, shard: Shard, spill: Spill, places: asyncio.Semaphore) -> None:
        async with places, aclosing(shard.rows(self._storage)) as pages:
            async for page in pages:
                await spill.add(page)

    async def _look_again(self, job: OrphanJob, work: Detection, listed: int) -> None:
        """Find the suspects that are in storage after all: they were committed after the listing passed.

        A few are checked one by one. A second listing, which is exact and bounded, finds the rest: if there are many,
        if there are bare names without an address, and if an object exists that should have been listed.
        """
        count = await self._run(work, work.find_suspects)
        few = count <= common.asked_singly(listed)
        suspects = await self._run(work, work.suspects) if few else []
        if few and all("/" in path for _, path in suspects):
            seen = await common.there_after_all(self._storage, suspects, self._concurrency, job.cutoff)
            if None not in seen:
                found = pa.table([pa.array(seen, pa.string())], SEEN_SCHEMA)
                await self._in_thread(partial(pq.write_table, found, work.seen))
                return
        match_by = job.layout.match_by
        await self._list(of_roots(job), work.seen, SEEN_SCHEMA, lambda rows: _keys_only(rows, match_by))

    async def _run(self, work: Detection, call: Callable[[], T]) -> T:
        """Run a step of the detection in a thread. A cancellation waits until the thread is done."""
        running = asyncio.get_running_loop().run_in_executor(self._workers, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                work.cancel()  # repeated: an interrupt between two queries has no effect
                await asyncio.wait([running], timeout=0.05)
            running.exception()
            raise

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """A full disk, or a join without enough memory, is a failure of the engine, not of the table."""
        try:
            yield
        except (duckdb.Error, OSError, pa.ArrowException) as exc:
            if isinstance(exc, duckdb.OutOfMemoryException) and _NO_DISK not in str(exc):
                why = f"the join needs more memory than engine.memory_limit = {self._memory_limit} gives it"
            else:
                why = str(exc).partition("\n")[0]  # the advice below it is DuckDB's own
            raise EngineFailed(f"the in-process engine could not finish: {why}") from exc


class _Stopwatch:
    """Seconds per phase."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 3)
        self._last = now


def _keys_only(rows: pa.RecordBatch, match_by: MatchBy) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([addresses.match_keys(rows.column("path"), match_by)], schema=SEEN_SCHEMA)
