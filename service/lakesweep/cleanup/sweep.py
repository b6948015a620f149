"""Delete what a checked plan names, batch by batch. The sole caller of a Deleter.

Before each batch the lease is still ours, and the head was read again after the batch before was written down. Files
that are referenced by now are spared. After an inventory so are files that were written anew. The intent is in the
audit trail and in the journal. Before each request the deleter checks again (`delete_conditions.py`). After each batch
its outcome is in the audit trail and in the journal.

Batches of one stage run side by side; a stage starts only when the one before it is finished. Stages below 0 close
history to readers, oldest first, up to the first that cannot be deleted; then the table is notified.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.aio import finish_shielded
from lakesweep.cleanup import addresses, batches, plan_file
from lakesweep.cleanup.batches import BatchSlots, hand_over
from lakesweep.cleanup.delete_conditions import HeadReads, LastCheck, Recheck, Revalidate
from lakesweep.model.errors import Interrupted, LakesweepError
from lakesweep.model.files import DeletionReport, OrphanPlan, Went
from lakesweep.model.policy import CleanupPolicy
from lakesweep.ports.audit import Audit
from lakesweep.ports.deleter import Deleted, Deleter, DeleteStatus
from lakesweep.ports.run import Fence, Progress, ReportProgress, Slots
from lakesweep.ports.state import BatchRecord, BatchState, StateStore
from lakesweep.ports.table import MatchBy

_TASKS_HELD = 1000
"""Finished batches are collected at least this often, so that a huge plan does not pile up tasks."""


@dataclass(kw_only=True)
class SweepResult:
    """What was deleted, what was spared, and what ended the sweep early, if anything."""

    report: DeletionReport = field(default_factory=DeletionReport)
    spared: int = 0
    stopped_by: LakesweepError | None = None
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One sweep of one plan. `run` may be called once."""

    run_id: str
    plan: OrphanPlan
    match_by: MatchBy
    policy: CleanupPolicy
    deleter: Deleter
    journal: StateStore
    audit: Audit
    fence: Fence
    revalidate: Revalidate
    check_not_held: Callable[[], Awaitable[None]]
    """Called before every request: raises Refused if the table is on hold by now."""
    stop: asyncio.Event
    """Set from outside to end the sweep after the requests that are under way."""
    progress: ReportProgress
    recheck: Recheck | None = None
    """Looks at every candidate once more: for a plan that was made from an inventory."""
    closed: Callable[[], Awaitable[None]] | None = None
    """Called once, when everything of the stages below 0 is deleted, before any other file is."""
    sending: Callable[[Sequence[str]], None] | None = None
    """Called before each request, with what it deletes."""
    places: Slots | None = None
    """Places for batches that all tables share; a batch waits for one before it is revalidated, not after."""
    result: SweepResult = field(default_factory=SweepResult)
    """What was done so far, also of a sweep that is cancelled."""
    last_check: LastCheck = field(init=False)
    reads: HeadReads = field(init=False)

    def __post_init__(self) -> None:
        reads = HeadReads(self._referenced)
        last_check = LastCheck(
            revalidate=reads.new, match_by=self.match_by, fence=self.fence, stop=self.stop, sending=self.sending
        )
        object.__setattr__(self, "last_check", last_check)
        object.__setattr__(self, "reads", reads)

    async def run(self) -> SweepResult:
        """Delete all stages in order. An error ends the sweep; what was done is always reported."""
        result = self.result
        slots = BatchSlots(self.policy.max_concurrent_deletions, self.places)
        running: set[asyncio.Task[None]] = set()
        deleting: asyncio.Task[None] | None = None
        stage: int | None = None
        closed = self.closed
        number, first = 0, 0
        try:
            async for batch in self._batches():
                begins = batch.column("stage")[0].as_py()
                if begins != stage or len(running) >= _TASKS_HELD:
                    await _finish(running)
                    stage = begins
                if closed and begins >= 0 and not self.stop.is_set():
                    await self._close(closed)
                    closed = None
                    self.reads.begin_batch()  # it may have changed what is referenced
                if begins < 0 and result.report.failed:  # something older stays: history must not get a hole
                    first += batch.num_rows
                    continue
                async with slots.taken() as slot:
                    if self.stop.is_set():
                        result.interrupted = True
                        break
                    await self.fence.check()
                    going, spared = self._spare(batch, await self.reads.since_last_batch(deleting))
                    going, replaced, gone = await self._look_again(going)
                    spared = pa.concat_batches([spared, replaced])
                    result.spared += spared.num_rows
                    record = BatchRecord(
                        run_id=self.run_id,
                        number=number,
                        first=first,
                        count=batch.num_rows,
                        fencing_token=self.fence.token,
                    )
                    await self.audit.deleting(record, going, spared)
                    # Last, since it checks the lease once more: storing the audit record may have taken long.
                    await self.journal.begin_batch(record)
                    self.reads.begin_batch()
                    deleting = asyncio.create_task(self._delete(record, going, gone, result), name=f"batch {number}")
                    deleting.add_done_callback(hand_over(slot))
                    running.add(deleting)
                number, first = number + 1, first + batch.num_rows
            await _finish(running)
            if closed and stage is not None and not self.stop.is_set():  # nothing but history was to go
                await self._close(closed)
        except LakesweepError as exc:
            result.stopped_by = exc
        except asyncio.CancelledError:
            # Cancelled means that the table is no longer ours: not one more request. The journal's intents say
            # that the outcome of these batches is unknown.
            for task in running:
                task.cancel()
            raise
        finally:
            await _finish(running)
        return result

    async def _close(self, closed: Callable[[], Awaitable[None]]) -> None:
        """It may write to the table: only while that is ours."""
        await self.fence.check()
        await closed()

    async def _referenced(self) -> frozenset[str]:
        await self.check_not_held()
        return await self.revalidate()  # last, since what it finds is what can be lost

    async def _batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Plan rows in order, split at stage borders as well as by size. They must be those that were checked."""
        cuts = plan_file.read_cut(self.plan.rows_path, self.policy.batch_size, self.plan.digest)
        while some := await asyncio.to_thread(next, cuts, None):
            for batch in some:
                yield batch

    def _spare(self, batch: pa.RecordBatch, referenced: frozenset[str]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """What is to be deleted, and what became referenced since the plan was made."""
        if not referenced:
            return batch, batch.slice(0, 0)
        paths = batch.column("path")
        keys, names = (addresses.match_keys(paths, by).to_pylist() for by in (self.match_by, MatchBy.NAME))
        return _parted(batch, referenced, keys, names)

    async def _look_again(self, going: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, frozenset[str]]:
        """What is to be deleted, what is another object by now, and what is gone already."""
        if self.recheck is None:
            return going, going.slice(0, 0), frozenset()
        replaced, gone = await self.recheck(plan_file.candidates(going))
        return *_parted(going, replaced, going.column("path").to_pylist()), gone

    async def _send(self, going: pa.RecordBatch, gone: frozenset[str]) -> list[Deleted]:
        """Delete what exists. Some stores report a missing object as deleted, so what was gone before is not sent."""
        paths: list[str] = going.column("path").to_pylist()
        sent = [path for path in paths if path not in gone] if gone else paths
        conditions = self.last_check.about(*self._judged(going, paths))
        answers = await self.deleter.delete(sent, conditions) if sent else []
        if [one.path for one in answers] != sent:
            raise ValueError(
                f"{len(sent)} objects were to be deleted, but the deleter's answers do not match them one by one"
            )
        if not gone:
            return answers
        rest = iter(answers)
        return [Deleted(path=path, status=DeleteStatus.ALREADY_GONE) if path in gone else next(rest) for path in paths]

    def _judged(self, going: pa.RecordBatch, paths: list[str]) -> tuple[dict[str, str], dict[str, int]]:
        """Etags, and times where there are none. An inventory rounds times; what it names was looked at again."""
        etags: list[str | None] = going.column("etag").to_pylist()
        known = {path: etag for path, etag in zip(paths, etags, strict=True) if etag}
        if self.recheck is not None or len(known) == len(paths):
            return known, {}
        times: list[int | None] = going.column("modified_at").cast(pa.int64()).to_pylist()
        written = {path: ms for path, ms in zip(paths, times, strict=True) if ms is not None and path not in known}
        return known, written

    async def _delete(
        self, record: BatchRecord, going: pa.RecordBatch, gone: frozenset[str], result: SweepResult
    ) -> None:
        try:
            answers = await self._send(going, gone)
            report = batches.deletion_report(going, answers)
            done = replace(
                record,
                state=BatchState.DONE,
                deleted=report.deleted.files,
                bytes=report.deleted.bytes,
                already_gone=report.already_gone,
                failed=len(report.failed),
                trash_bytes=report.retained_bytes(Went.TRASH),
                versions_bytes=report.retained_bytes(Went.VERSIONS),
            )
            result.report += report
            result.spared += sum(one.status is DeleteStatus.SPARED for one in answers)
            self._stop_if_not_sent(answers, result)
            # The files are gone: that fact must be written down even while we are being cancelled.
            await finish_shielded(self._write_down(done, going, answers))
            self.progress(
                Progress(phase="sweeping", done=result.report.deleted.files, total=self.plan.candidates.files)
            )
        except LakesweepError as exc:
            result.stopped_by = result.stopped_by or exc
            self.stop.set()
        except BaseException:
            self.stop.set()  # a bug: no further batch, and `_finish` lets it out
            raise

    def _stop_if_not_sent(self, answers: Sequence[Deleted], result: SweepResult) -> None:
        """If something was not sent, the sweep ends, for the reason that the last check gave."""
        if all(one.status is not DeleteStatus.NOT_SENT for one in answers):
            return
        why = self.last_check.ended_by
        if why is None or isinstance(why, Interrupted):
            result.interrupted = True
        else:
            result.stopped_by = result.stopped_by or why
        self.stop.set()

    async def _write_down(self, done: BatchRecord, going: pa.RecordBatch, answers: Sequence[Deleted]) -> None:
        """Into the audit trail and the journal: into the journal even if the audit trail fails."""
        try:
            await self.audit.deleted(done, batches.audit_rows(going, answers))
        finally:
            await self.journal.finish_batch(done)


async def _finish(running: set[asyncio.Task[None]]) -> None:
    """Wait for every running batch, also after one of them met a bug; then raise that error."""
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    running.clear()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _parted(
    rows: pa.RecordBatch, chosen: frozenset[str], *keys: Sequence[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows that have no key among the chosen, and rows that have one."""
    if all(map(chosen.isdisjoint, keys)):
        return rows, rows.slice(0, 0)
    taken = pa.array([not chosen.isdisjoint(row) for row in zip(*keys, strict=True)], pa.bool_())
    return rows.filter(pc.invert(taken)), rows.filter(taken)
