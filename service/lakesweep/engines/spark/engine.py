"""The engine on Spark: executors list, fetch, decode, join and judge; this process only says what comes next.

List, then mark, then read, then judge, then look again for what seems to be missing: the same order, rules and
plan as in-process. The listing is on disk before the table is read. Executors read storage and nothing else.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import PLACED_SCHEMA, Role
from lakesweep.engines import common
from lakesweep.engines.duckdb_plan import SEEN_SCHEMA
from lakesweep.engines.listing import Listing, of_parts, of_roots, planned
from lakesweep.engines.manifest_cache import DigestCache
from lakesweep.engines.scratch import scratch
from lakesweep.engines.sources import SourceReader
from lakesweep.engines.spark import executor
from lakesweep.engines.spark.backends import parallelism
from lakesweep.engines.spark.pipeline import Pipeline
from lakesweep.engines.spark.session import JobLabel, SparkRuntime
from lakesweep.model.errors import EngineFailed, Indeterminate, OutOfOrder
from lakesweep.model.files import OrphanPlan
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

log = structlog.get_logger(__name__)

_ASKED_HERE = 1000
"""More suspects than this are asked for by the executors."""
_ASKED_PER_TASK = 5000
_PATHS_AT_ONCE = 65_536
_PIECES_PER_CORE = 3
"""More tasks than cores, so that a slow one holds up little."""
_PIECE_BYTES = 128 * 1024 * 1024
"""Source bytes that one task reads at most, unless one source alone is larger."""
_UNKNOWN_SIZE = 8 * 1024 * 1024
"""What a source without a recorded length counts for."""


class SparkEngine:
    """Finds orphans on Spark. One engine serves many tables, also side by side."""

    name = "spark"

    def __init__(
        self,
        *,
        runtime: SparkRuntime,
        storage: Storage,
        open_storage: executor.OpenStorage,
        decoder: executor.Decoder,
        cache: DigestCache | None,
        scratch_dir: Path,
        concurrency: int = 16,
    ) -> None:
        """`storage` reads here; `open_storage` and `decoder` travel to the executors."""
        self._runtime = runtime
        self._storage = storage
        self._open_storage = open_storage
        self._decoder = decoder
        self._scratch_dir = scratch_dir
        self._concurrency = concurrency
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        self._reader = SourceReader(
            storage=storage, decoder=decoder, cache=cache, concurrency=concurrency, threads=self._threads
        )

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        with _own_errors():
            session = await self._runtime.session()
            async with scratch(self._scratch_dir) as directory:
                run = _Run(runtime=self._runtime, session=session, job=job, pipeline=Pipeline(directory))
                try:
                    return await self._find(job, run)
                finally:
                    with suppress(EngineFailed):  # views of a session that is gone are gone too
                        await run.step("clean up", run.pipeline.close)

    def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncGenerator[tuple[ReferenceSource, pa.RecordBatch]]:
        return self._reader.references(sources)

    async def aclose(self) -> None:
        """Stop the threads, and Spark if nobody else uses it."""
        await asyncio.to_thread(partial(self._threads.shutdown, cancel_futures=True))
        await self._runtime.aclose()

    async def _find(self, job: OrphanJob, run: _Run) -> OrphanPlan:
        pipeline = run.pipeline
        tasks = _PIECES_PER_CORE * await run.step("list", parallelism)
        listing = await planned(job, self._storage, tasks)
        listed = await self._list(job, run, listing)
        listing.check_rows(listed)
        marked = await job.mark()
        run.lap("mark")
        skipped = await self._read(job, marked.references, run)
        judging = executor.judging(job.layout, job.cutoff)
        await run.step("judge", lambda spark: pipeline.judge(spark, judging))
        suspects = await self._look_again(job, run, listed)
        findings = await run.step("count", lambda spark: pipeline.confirm(spark, suspects))
        digest = await run.step("write", lambda spark: pipeline.write_rows(spark, job.rows_path))
        return common.assemble(
            job, marked, findings, skipped=skipped, digest=digest, engine=self.name, timings=run.laps
        )

    async def _list(self, job: OrphanJob, run: _Run, listing: Listing, *, again: bool = False) -> int:
        """Every shard in a task of its own; `again` for the match keys alone. Returns how many rows there are."""
        phase, write = ("look again", run.pipeline.write_seen) if again else ("list", run.pipeline.write_listing)
        work = executor.listing(self._open_storage, listing.shards, job.layout.match_by, keys_only=again)
        try:
            return await run.step(phase, lambda spark: write(spark, work, len(listing.shards)))
        except OutOfOrder as exc:
            if not listing.divided:
                raise
            log.info("listed_undivided", table=job.ref.label, reason=exc.why)
            return await self._list(job, run, of_roots(job), again=again)

    async def _read(self, job: OrphanJob, references: References, run: _Run) -> int:
        """Everything that names files. Returns how much of the expired side had to be left out."""
        pipeline, match_by = run.pipeline, job.layout.match_by
        pieces = balanced(references.sources, await run.step("plan", parallelism))
        directory = pipeline.path("sources")
        skipped = await asyncio.to_thread(_write_named, pipeline.path("named"), references, job)
        await asyncio.to_thread(_save_pieces, directory, pieces)
        work = executor.reading(self._open_storage, self._decoder, str(directory), match_by, job.roots)
        await run.step("read", lambda spark: pipeline.read_sources(spark, work, len(pieces)))
        return skipped + await run.step("read", pipeline.take_references)

    async def _look_again(self, job: OrphanJob, run: _Run, listed: int) -> int:
        """Find those of the suspects that storage does have: they were committed after the listing passed by.

        A few are asked for here, more by the executors; too many, bare names, and what is there although it should have
        been listed are looked for in a listing.
        """
        pipeline = run.pipeline
        count = await run.step("look again", pipeline.find_suspects)
        if not count:
            return 0
        bare = await run.step("look again", pipeline.bare_suspects)
        if bare or count > common.asked_singly(listed) or not await self._asked_for(job, run, count):
            tasks = _PIECES_PER_CORE * await run.step("look again", parallelism)
            await self._list(job, run, await of_parts(job, self._storage, tasks), again=True)
        return count

    async def _asked_for(self, job: OrphanJob, run: _Run, count: int) -> bool:
        """Ask for every suspect. Is it known now of each whether it is missing?"""
        pipeline = run.pipeline
        if count > _ASKED_HERE:
            tasks = math.ceil(count / _ASKED_PER_TASK)
            work = executor.looking(self._open_storage, job.cutoff)
            return await run.step("look again", lambda spark: pipeline.ask_for_suspects(spark, work, tasks))
        suspects = await run.step("look again", pipeline.suspects)
        found = await common.there_after_all(self._storage, suspects, self._concurrency, job.cutoff)
        if None in found:
            return False
        seen = pa.table([pa.array(found, pa.string())], SEEN_SCHEMA)
        await asyncio.to_thread(pq.write_table, seen, pipeline.path("seen"))
        return True


class _Run:
    """One table's way through the session: its label, its steps and their times."""

    def __init__(self, *, runtime: SparkRuntime, session: SparkSession, job: OrphanJob, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.laps: dict[str, float] = {}
        self._runtime = runtime
        self._session = session
        self._table = job.ref.label
        self._id = Path(job.rows_path).stem
        self._last = time.perf_counter()

    async def step(self, phase: str, work: Callable[[SparkSession], T]) -> T:
        """Some work on Spark, under this run's name."""
        label = JobLabel(group=f"lakesweep-{self._id}", description=f"{self._table}: {phase} (run {self._id})")
        done = await self._runtime.run(self._session, label, work)
        self.lap(phase.replace(" ", "_"))
        return done

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to a phase."""
        now = time.perf_counter()
        self.laps[phase] = round(self.laps.get(phase, 0.0) + now - self._last, 3)
        self._last = now


def balanced(sources: Sequence[ReferenceSource], cores: int) -> list[list[ReferenceSource]]:
    """Sources in pieces of about equal bytes, largest first: as many pieces as keep all cores busy to the end."""
    total = sum(_weight(source) for source in sources)
    count = min(len(sources), max(cores * _PIECES_PER_CORE, math.ceil(total / _PIECE_BYTES)))
    pieces: list[list[ReferenceSource]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for source in sorted(sources, key=_weight, reverse=True):
        weight, number = lightest[0]
        pieces[number].append(source)
        heapq.heapreplace(lightest, (weight + _weight(source), number))
    return pieces


def _weight(source: ReferenceSource) -> int:
    """Never nothing: what weighs nothing would all go into one piece and leave others empty."""
    return max(1, source.size_bytes) if source.size_bytes is not None else _UNKNOWN_SIZE


def _save_pieces(directory: Path, pieces: Sequence[Sequence[ReferenceSource]]) -> None:
    directory.mkdir()
    for number, piece in enumerate(pieces):
        executor.save_piece(directory, number, piece)


def _write_named(target: Path, references: References, job: OrphanJob) -> int:
    """What metadata names directly, to a file. Returns how many pieces of the expired side had to be left out."""
    skipped = 0
    with pq.ParquetWriter(target, PLACED_SCHEMA, compression="zstd") as writer:
        for role, paths, tolerated in common.named_directly(references):
            try:
                writer.write_batch(addresses.place(paths, role, job.layout.match_by, job.roots, tolerated))
            except Indeterminate:
                if role is Role.NAMED:
                    raise
                skipped += 1
    return skipped


@contextmanager
def _own_errors() -> Iterator[None]:
    """A full disk is the engine's trouble, not the table's."""
    try:
        yield
    except (OSError, pa.ArrowException) as exc:
        raise EngineFailed(f"the Spark engine could not finish: {exc}") from exc
