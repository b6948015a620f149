"""The Spark engine: executors list, fetch, decode, join and judge; this process only drives the steps.

List, then mark, then read, then judge, then look again for what seems to be missing: the same order, rules and
plan as in-process. The listing is written before the table is read. Executors read storage, and write
scratch and nothing else.
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
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import structlog

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import Role
from lakesweep.engines import common, fingerprints
from lakesweep.engines.duckdb_plan import SEEN_SCHEMA
from lakesweep.engines.listing import Listing, of_parts, of_roots, planned
from lakesweep.engines.manifest_cache import DigestCache
from lakesweep.engines.sources import SourceReader
from lakesweep.engines.spark import executor, worker_rows
from lakesweep.engines.spark.backends import parallelism
from lakesweep.engines.spark.pipeline import Pipeline
from lakesweep.engines.spark.scratch import Scratch
from lakesweep.engines.spark.session import JobLabel, SessionLost, SparkRuntime
from lakesweep.model.errors import EngineFailed, Indeterminate, LakesweepError, OutOfOrder
from lakesweep.model.files import OrphanPlan
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

log = structlog.get_logger(__name__)

_ASKED_HERE = 1000
"""If there are more suspects than this, the executors check them."""
_ASKED_PER_TASK = 5000
_PATHS_AT_ONCE = 65_536
_PIECES_PER_CORE = 3
"""Tasks per core, so that a slow task delays little."""
_PIECE_BYTES = 128 * 1024 * 1024
"""The most source bytes that one task reads, unless a single source is larger."""
_UNKNOWN_SIZE = 8 * 1024 * 1024
"""The assumed size of a source without a recorded length."""


class SparkEngine:
    """Finds orphans on Spark. One engine serves many tables, also concurrently."""

    name = "spark"

    def __init__(
        self,
        *,
        runtime: SparkRuntime,
        storage: Storage,
        open_storage: executor.OpenStorage,
        decoder: executor.Decoder,
        cache: DigestCache | None,
        scratch: Scratch,
        concurrency: int = 16,
    ) -> None:
        """`storage` reads in this process; `open_storage` and `decoder` are sent to the executors."""
        self._runtime = runtime
        self._storage = storage
        self._open_storage = open_storage
        self._decoder = decoder
        self._scratch = scratch
        self._concurrency = concurrency
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        self._reader = SourceReader(
            storage=storage, decoder=decoder, cache=cache, concurrency=concurrency, threads=self._threads
        )

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        with _own_errors():
            if self._runtime.cold:
                job.tell(f"start Spark at {self._runtime.config.where}")
            session = await self._runtime.session()
            await asyncio.to_thread(fingerprints.shared)  # opened once, which takes a moment
            run = _Run(runtime=self._runtime, session=session, job=job)
            async with self._scratch.opened(partial(run.step, "scratch")) as relations:
                run.pipeline = Pipeline(relations)
                try:
                    await self._check_scratch(run)
                    return await self._find(job, run)
                finally:
                    with suppress(EngineFailed):  # the views are gone together with their session
                        await run.step("clean up", run.pipeline.close)

    def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncGenerator[tuple[ReferenceSource, pa.RecordBatch]]:
        return self._reader.references(sources)

    async def aclose(self) -> None:
        """Stop the threads, and Spark if nobody else uses it."""
        await asyncio.to_thread(partial(self._threads.shutdown, cancel_futures=True))
        await self._runtime.aclose()

    async def _check_scratch(self, run: _Run) -> None:
        """Checked once for each session. A later executor without access shows in the counts of what it writes."""
        if not self._scratch.shared or self._runtime.reaches(run.session, self._scratch.where):
            return
        try:
            await run.step("scratch", run.pipeline.probe)
        except SessionLost:
            raise
        except LakesweepError as exc:
            raise EngineFailed(
                "set engine.spark.scratch to a place that this service and all Spark executors can write and read: "
                f"{self._scratch.where} is not one ({exc})"
            ) from exc
        self._runtime.reaches(run.session, self._scratch.where, now=True)

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
        suspects = await self._look_again(job, run, listed) if common.looks_for_missing(job) else 0
        findings = await run.step("count", lambda spark: pipeline.confirm(spark, suspects))
        digest = await run.step("write", lambda spark: pipeline.write_rows(spark, job.rows_path))
        return common.assemble(
            job, marked, findings, skipped=skipped, digest=digest, engine=self.name, timings=run.laps
        )

    async def _list(self, job: OrphanJob, run: _Run, listing: Listing, *, again: bool = False) -> int:
        """List every shard in its own task; with `again` only the match keys. Returns the number of rows."""
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
        pipeline = run.pipeline
        sorted_out = balanced(references.sources, await run.step("plan", parallelism))
        run.sources = [source for piece in sorted_out for source in piece]
        named, released, skipped = await asyncio.to_thread(_named, references, job)
        pieces = executor.Pieces(
            sources=[executor.save_piece(piece) for piece in sorted_out],
            named=named,
            released=released,
            firsts=list(accumulate((len(piece) for piece in sorted_out[:-1]), initial=0)) if sorted_out else (),
        )
        work = self._reading(job, pieces)
        await run.step("read", lambda spark: pipeline.read_sources(spark, work, len(sorted_out) + len(named)))
        return skipped + await run.step("read", pipeline.take_references)

    def _reading(self, job: OrphanJob, pieces: executor.Pieces) -> executor.Work:
        return executor.reading(self._open_storage, self._decoder, pieces, job.layout.match_by, job.roots)

    async def _recall(self, job: OrphanJob, run: _Run, numbers: Sequence[int]) -> None:
        """Read these sources in full, although their fingerprints were enough up to now: something is not there."""
        pipeline = run.pipeline
        sorted_out = balanced([run.sources[number] for number in numbers], await run.step("look again", parallelism))
        work = self._reading(job, executor.Pieces(sources=[executor.save_piece(piece) for piece in sorted_out]))
        if not await run.step("look again", lambda spark: pipeline.explain_lost(spark, work, len(sorted_out))):
            raise EngineFailed("a manifest was modified in place while it was read: no part of this plan is reliable")

    async def _look_again(self, job: OrphanJob, run: _Run, listed: int) -> int:
        """Find the suspects that are in storage after all: they were committed after the listing passed.

        A few are asked for here, more by the executors; too many, bare names, and what is there although it should have
        been listed are looked for in a listing.
        """
        pipeline = run.pipeline
        if lost := await run.step("look again", pipeline.incomplete):
            await self._recall(job, run, lost)
        count = await run.step("look again", pipeline.find_suspects)
        if not count:
            return 0
        bare = await run.step("look again", pipeline.bare_suspects)
        if bare or count > common.asked_singly(listed) or not await self._asked_for(job, run, count):
            tasks = _PIECES_PER_CORE * await run.step("look again", parallelism)
            await self._list(job, run, await of_parts(job, self._storage, tasks), again=True)
        return count

    async def _asked_for(self, job: OrphanJob, run: _Run, count: int) -> bool:
        """Check every suspect in storage. Returns whether each is now known to be missing or present."""
        pipeline = run.pipeline
        if count > _ASKED_HERE:
            tasks = math.ceil(count / _ASKED_PER_TASK)
            work = executor.looking(self._open_storage, job.cutoff)
            return await run.step("look again", lambda spark: pipeline.ask_for_suspects(spark, work, tasks))
        suspects = await run.step("look again", pipeline.suspects)
        found = await common.there_after_all(self._storage, suspects, self._concurrency, job.cutoff)
        if None in found:
            return False
        seen = pa.record_batch([pa.array(found, pa.string())], schema=SEEN_SCHEMA)
        work = executor.given([worker_rows.packed([seen])])
        await run.step("look again", lambda spark: pipeline.write_seen(spark, work, 1))
        return True


class _Run:
    """One table's run in the session: its label, its steps and their times."""

    pipeline: Pipeline
    sources: Sequence[ReferenceSource] = ()
    """By their numbers in `stand_ins`."""

    def __init__(self, *, runtime: SparkRuntime, session: SparkSession, job: OrphanJob) -> None:
        self.session = session
        self.laps: dict[str, float] = {}
        self._runtime = runtime
        self._table = job.ref.label
        self._tell = job.tell
        self._id = Path(job.rows_path).stem
        self._last = time.perf_counter()

    async def step(self, phase: str, work: Callable[[SparkSession], T]) -> T:
        """Run some work on Spark under this run's name."""
        self._tell(phase)
        label = JobLabel(group=f"lakesweep-{self._id}", description=f"{self._table}: {phase} (run {self._id})")
        done = await self._runtime.run(self.session, label, work)
        self.lap(phase.replace(" ", "_"))
        return done

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to a phase."""
        now = time.perf_counter()
        self.laps[phase] = round(self.laps.get(phase, 0.0) + now - self._last, 3)
        self._last = now


def balanced(sources: Sequence[ReferenceSource], cores: int) -> list[list[ReferenceSource]]:
    """Sources in pieces of about equal bytes, largest first, and enough pieces to keep all cores busy to the end."""
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
    """At least 1: sources without weight would all go into one piece and leave others empty."""
    return max(1, source.size_bytes) if source.size_bytes is not None else _UNKNOWN_SIZE


def _named(references: References, job: OrphanJob) -> tuple[list[bytes], list[int], int]:
    """What metadata names directly, which pieces of it are released, and how many pieces of the expired side had to be
    left out."""
    found: list[bytes] = []
    released: list[int] = []
    skipped = 0
    for role, paths, tolerated in common.named_directly(references):
        try:
            placed = addresses.place(paths, role, job.layout.match_by, job.roots, tolerated)
        except Indeterminate:
            if role is Role.NAMED:
                raise
            skipped += 1
            continue
        released += [len(found)] if role is Role.RELEASED else []
        found.append(worker_rows.packed([worker_rows.in_full(placed)]))
    return found, released, skipped


@contextmanager
def _own_errors() -> Iterator[None]:
    """A full disk is a failure of the engine, not of the table."""
    try:
        yield
    except (OSError, pa.ArrowException) as exc:
        raise EngineFailed(f"the Spark engine could not finish: {exc}") from exc
