"""The Spark engine: executors list, fetch, decode, join and judge; this process only drives the steps.

List, then mark, then read, then judge, then look again for what seems to be missing: the same order, rules and
plan as in-process. The listing is written before the table is read. Executors read storage, and write
scratch and nothing else.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate

import pyarrow as pa
import structlog

from lakesweep.engines import common, fingerprints
from lakesweep.engines.duckdb_plan import SEEN_SCHEMA
from lakesweep.engines.listing import Listing, of_parts, of_roots, planned
from lakesweep.engines.manifest_cache import FingerprintCache, code_identity
from lakesweep.engines.manifest_fingerprints import SourceFingerprints
from lakesweep.engines.scratch import scratch
from lakesweep.engines.sources import SourceReader
from lakesweep.engines.spark import executor, worker_rows
from lakesweep.engines.spark.backends import parallelism
from lakesweep.engines.spark.join_here import JoinedHere, JoinHere
from lakesweep.engines.spark.judge_here import JudgedHere
from lakesweep.engines.spark.known_sources import KnownSources
from lakesweep.engines.spark.pieces import PIECES_PER_CORE, balanced, named_here
from lakesweep.engines.spark.pipeline import Pipeline
from lakesweep.engines.spark.scratch import Scratch
from lakesweep.engines.spark.session import SessionLost, SparkRuntime
from lakesweep.engines.spark.session_run import SessionRun
from lakesweep.engines.spark.steps import Steps
from lakesweep.model.errors import EngineFailed, LakesweepError, OutOfOrder
from lakesweep.model.files import OrphanPlan
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.storage import Storage

log = structlog.get_logger(__name__)

_ASKED_HERE = 1000
"""If there are more suspects than this, the executors check them."""
_ASKED_PER_TASK = 5000


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
        cache: FingerprintCache | None,
        scratch: Scratch,
        concurrency: int = 16,
        small: JoinHere | None = None,
    ) -> None:
        """`storage` reads in this process; `open_storage` and `decoder` are sent to the executors. Without `small`
        every table is joined on Spark."""
        self._runtime = runtime
        self._storage = storage
        self._open_storage = open_storage
        self._decoder = decoder
        self._scratch = scratch
        self._concurrency = concurrency
        self._cache = cache
        self._small = small
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        self._reader = SourceReader(
            storage=storage, decoder=decoder, cache=cache, concurrency=concurrency, threads=self._threads
        )

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        with _own_errors():
            if self._runtime.cold:
                job.report_step(f"start Spark at {self._runtime.config.where}")
            session = await self._runtime.session()
            await asyncio.to_thread(fingerprints.shared)  # opened once, which takes a moment
            run = SessionRun(runtime=self._runtime, session=session, job=job)
            async with AsyncExitStack() as stack:
                run.pipeline = Pipeline(
                    await stack.enter_async_context(self._scratch.opened(partial(run.step, "scratch")))
                )
                run.stack = stack
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

    async def _check_scratch(self, run: SessionRun) -> None:
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

    async def _find(self, job: OrphanJob, run: SessionRun) -> OrphanPlan:
        tasks = PIECES_PER_CORE * await run.step("list", parallelism)
        listing = await planned(job, self._storage, tasks)
        listed = await self._list(job, run, listing)
        listing.check_rows(listed)
        marked = await job.mark()
        run.lap("mark")
        skipped = await self._read(job, marked.references, run)
        pipeline = await self._judge(job, run)
        suspects = await self._look_again(job, run, listed) if common.looks_for_missing(job) else 0
        findings = await run.step("count", lambda spark: pipeline.confirm(spark, suspects))
        digest = await run.step("write", lambda spark: pipeline.write_rows(spark, job.rows_path))
        return common.assemble(
            job, listing, marked, findings, skipped=skipped, digest=digest, engine=self.name, timings=run.laps
        )

    async def _judge(self, job: OrphanJob, run: SessionRun) -> Steps:
        """Compare and judge. What is left after the first, or after the second, may come into this process."""
        pipeline, small = run.pipeline, self._small
        compared = await run.step("judge", pipeline.compare)
        if small is not None and compared is not None and JudgedHere.may(pipeline, compared, small.left):
            directory = await run.stack.enter_async_context(scratch(small.directory))
            run.pipeline = pipeline = JudgedHere(pipeline, compared, directory)
        await run.step("judge", lambda spark: pipeline.judge(spark, job.layout, job.cutoff))
        if small is not None and 0 < pipeline.verdicts <= small.verdicts:
            directory = await run.stack.enter_async_context(scratch(small.directory))
            await run.step("judge", lambda spark: pipeline.take_verdicts(spark, directory))
        return pipeline

    async def _list(self, job: OrphanJob, run: SessionRun, listing: Listing, *, again: bool = False) -> int:
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

    async def _read(self, job: OrphanJob, references: References, run: SessionRun) -> int:
        """Everything that names files. Returns how much of the expired side had to be left out."""
        pipeline = run.pipeline
        named, released, skipped = await asyncio.to_thread(named_here, references, job)
        pieces = executor.Pieces(sources=(), named=named, released=released)
        rest = await self._take_known(job, references, run, pieces.released_keys())
        sorted_out = balanced(rest, await run.step("plan", parallelism))
        run.sources = [*references.sources, *(source for piece in sorted_out for source in piece)]
        pieces = replace(
            pieces,
            sources=[executor.save_piece(piece) for piece in sorted_out],
            firsts=list(accumulate(map(len, sorted_out), initial=len(references.sources))),
            cached_by=code_identity() if run.known is not None else None,
        )
        work = self._reading(job, pieces)
        await run.step("read", lambda spark: pipeline.read_sources(spark, work, len(sorted_out) + len(named)))
        if run.known is not None and rest:
            await run.step("read", partial(pipeline.learn, run.known, run.sources))
        if self._small is not None and pipeline.rows_held <= self._small.rows:
            directory = await run.stack.enter_async_context(scratch(self._small.directory))
            run.pipeline = JoinedHere(pipeline, directory)
        return skipped + await run.step("read", run.pipeline.take_references)

    async def _take_known(
        self, job: OrphanJob, references: References, run: SessionRun, released: pa.Array
    ) -> Sequence[ReferenceSource]:
        """Take from the cache what is there. Returns the sources that must be read."""
        if self._cache is None:
            return references.sources
        match_by, roots = job.layout.match_by, job.roots
        source_fingerprints = await asyncio.to_thread(
            partial(
                SourceFingerprints, self._cache, references.sources, match_by=match_by, roots=roots, released=released
            )
        )
        place = common.placing(match_by, roots)
        run.known = known = KnownSources(self._cache, source_fingerprints, references.sources, place)
        await run.step("read", lambda spark: run.pipeline.put_known(spark, known.rows()))
        return known.rest

    def _reading(self, job: OrphanJob, pieces: executor.Pieces) -> executor.Work:
        return executor.reading(self._open_storage, self._decoder, pieces, job.layout.match_by, job.roots)

    async def _recall(self, job: OrphanJob, run: SessionRun, numbers: Sequence[int]) -> None:
        """Read these sources in full, although their fingerprints were enough up to now: something is not there."""
        pipeline = run.pipeline
        sorted_out = balanced([run.sources[number] for number in numbers], await run.step("look again", parallelism))
        work = self._reading(job, executor.Pieces(sources=[executor.save_piece(piece) for piece in sorted_out]))
        if not await run.step("look again", lambda spark: pipeline.explain_lost(spark, work, len(sorted_out))):
            if run.known is not None:
                await asyncio.to_thread(run.known.forget)
            raise EngineFailed(
                "a manifest was modified in place, so this plan is not reliable; the next run reads everything again"
            )

    async def _look_again(self, job: OrphanJob, run: SessionRun, listed: int) -> int:
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
            tasks = PIECES_PER_CORE * await run.step("look again", parallelism)
            await self._list(job, run, await of_parts(job, self._storage, tasks), again=True)
        return count

    async def _asked_for(self, job: OrphanJob, run: SessionRun, count: int) -> bool:
        """Check every suspect in storage. Returns whether each is now known to be missing or present."""
        pipeline = run.pipeline
        if count > _ASKED_HERE and not pipeline.asks_here:
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


@contextmanager
def _own_errors() -> Iterator[None]:
    """A full disk is a failure of the engine, not of the table."""
    try:
        yield
    except (OSError, pa.ArrowException) as exc:
        raise EngineFailed(f"the Spark engine could not finish: {exc}") from exc
