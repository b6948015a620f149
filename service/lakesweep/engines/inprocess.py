"""The engine inside this process: asyncio lists and fetches, threads decode, DuckDB joins.

List, then mark, then read, then judge, then look again for what seems to be missing. The listing is complete
before the table is read, so a commit in between counts as live. Memory is bounded whatever the table's size, and
the event loop only hands batches on. It reads storage and writes its scratch directory and the plan; no more.
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

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import INVENTORY_SCHEMA, PLACED_SCHEMA, Role
from lakesweep.cleanup.ports import TOLERATED, Decode, MatchBy, OrphanJob, References, ReferenceSource, Storage
from lakesweep.engines import steps
from lakesweep.engines.cache import DigestCache
from lakesweep.engines.detection import SEEN_SCHEMA, Detection
from lakesweep.engines.scratch import scratch
from lakesweep.engines.sources import SourceReader
from lakesweep.engines.spill import Spill
from lakesweep.model.errors import EngineFailed, Indeterminate
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

T = TypeVar("T")

_STAT_AT_MOST = 1000
"""More suspects than this are looked for by listing the roots once more, which costs the same for any number."""
_PATHS_AT_ONCE = 65_536


class InProcessEngine:
    """Finds orphans in this process. One engine serves many tables, also side by side."""

    name = "inprocess"

    def __init__(
        self,
        *,
        storage: Storage,
        decoder: Callable[[FormatName], Decode],
        cache: DigestCache | None,
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
        self._reader = SourceReader(
            storage=storage, decoder=decoder, cache=cache, concurrency=concurrency, threads=self._decoders
        )

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        """List, then mark, then judge."""
        with _own_errors():
            async with scratch(self._scratch_dir) as directory:
                work = Detection(directory, memory_limit=self._memory_limit, threads=self._cores)
                try:
                    return await self._find(job, work)
                finally:
                    await self._in_thread(work.close)

    async def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncGenerator[tuple[ReferenceSource, pa.RecordBatch]]:
        """Decode some sources now. Raises Unreadable on a retained one; an expired one is left out."""
        async with aclosing(self._reader.read(sources, lambda _, batch: batch)) as found:
            async for source, batch in found:
                if batch is not None:
                    yield source, batch

    async def aclose(self) -> None:
        """Stop the threads once their present work is done."""
        for pool in (self._decoders, self._workers):
            await asyncio.to_thread(partial(pool.shutdown, cancel_futures=True))

    async def _find(self, job: OrphanJob, work: Detection) -> OrphanPlan:
        watch = _Stopwatch()
        match_by = job.layout.match_by
        await self._list(job.roots, work.inventory, INVENTORY_SCHEMA, lambda rows: addresses.inventory(rows, match_by))
        watch.lap("list")
        marked = await job.mark()
        watch.lap("mark")
        skipped = await self._read(job, marked.references, work.refs)
        watch.lap("read")
        await self._run(work, partial(work.judge, job.layout, job.cutoff))
        watch.lap("judge")
        await self._look_again(job, work)
        watch.lap("look_again")
        findings = await self._run(work, work.confirm)
        digest = await self._run(work, partial(work.write_rows, job.rows_path))
        watch.lap("write")
        return steps.assemble(
            job, marked, findings, skipped=skipped, digest=digest, engine=self.name, timings=watch.laps
        )

    async def _list(
        self,
        roots: Sequence[Location],
        target: Path,
        schema: pa.Schema,
        prepare: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        """All objects below all roots, to a file. Returns only when every listing is complete."""
        async with Spill(target, schema, self._workers, prepare) as spill:
            await steps.together([(f"list {root}", self._list_root(root, spill)) for root in roots])

    async def _list_root(self, root: Location, spill: Spill) -> None:
        async with aclosing(self._storage.list(root)) as pages:
            async for page in pages:
                await spill.add(page)

    async def _read(self, job: OrphanJob, references: References, target: Path) -> int:
        """Everything that names files, to a file. Returns how much of the expired side had to be left out."""
        skipped = 0
        match_by, roots = job.layout.match_by, job.roots

        def place(source: ReferenceSource, batch: pa.RecordBatch) -> pa.RecordBatch:
            role = Role.READ if source.retained else Role.EXPIRED
            tolerated = batch.column(TOLERATED.name) if TOLERATED.name in batch.schema.names else False
            return addresses.place(batch.column("path"), role, match_by, roots, tolerated)

        async with Spill(target, PLACED_SCHEMA, self._workers) as spill:
            for role, paths, tolerated in steps.named_directly(references):
                try:
                    place_all = partial(addresses.place, paths, role, match_by, roots, tolerated)
                    await spill.add(await self._in_thread(place_all))
                except Indeterminate:
                    if role is Role.NAMED:
                        raise
                    skipped += 1
            async with aclosing(self._reader.read(references.sources, place)) as found:
                async for _, placed in found:
                    if placed is None:
                        skipped += 1
                    else:
                        await spill.add(placed)
        return skipped

    async def _look_again(self, job: OrphanJob, work: Detection) -> None:
        """Find those of the suspects that storage does have: they were committed after the listing passed by.

        A few are asked for one by one. Many, or bare names, which have no address to ask for, are looked for in a
        second listing: it is exact, and bounded however many there are.
        """
        count = await self._run(work, work.find_suspects)
        suspects = await self._run(work, work.suspects) if count <= _STAT_AT_MOST else []
        match_by = job.layout.match_by
        if count > _STAT_AT_MOST or any("/" not in path for _, path in suspects):
            await self._list(job.roots, work.seen, SEEN_SCHEMA, lambda rows: _keys_only(rows, match_by))
            return
        seen = await steps.there_after_all(self._storage, suspects, self._concurrency)
        await self._in_thread(partial(pq.write_table, pa.table([pa.array(seen, pa.string())], SEEN_SCHEMA), work.seen))

    async def _run(self, work: Detection, call: Callable[[], T]) -> T:
        """A step of the detection in a thread, which is out of the way before a cancellation goes on."""
        running = asyncio.get_running_loop().run_in_executor(self._workers, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                work.cancel()  # again and again: an interrupt that meets no running query goes unheard
                await asyncio.wait([running], timeout=0.05)
            running.exception()
            raise

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)


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


@contextmanager
def _own_errors() -> Iterator[None]:
    """A full disk or a join that found no memory is the engine's trouble, not the table's."""
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as exc:
        raise EngineFailed(f"the in-process engine could not finish: {exc}") from exc
