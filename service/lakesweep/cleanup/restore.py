"""Restore what a run deleted: from the trash, or by removing the delete markers that it left. A restore is a run too.

The order is the reverse of deleting, and no existing file is touched: files, then what names them, and the snapshot and
log files through which readers open them at the very end, the newest first. So a concurrent reader sees a table without
them, or with everything they need. Every batch is in the audit trail and in the journal before it is moved; a restore
that was interrupted is simply run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakesweep.aio import finish_shielded, interruption
from lakesweep.cleanup import restore_finder
from lakesweep.cleanup.restore_finder import ALREADY_THERE, EntryBlock, Finder
from lakesweep.model.files import Candidate
from lakesweep.model.run import Restored
from lakesweep.ports.audit import RESTORE_RESULTS_SCHEMA, Audit
from lakesweep.ports.deleter import Deleted, DeleteStatus, Marker, Move, Mover
from lakesweep.ports.run import Fence
from lakesweep.ports.state import BatchRecord, BatchState, StateStore


@dataclass(frozen=True, kw_only=True)
class Restore:
    """One restore. `run` may be called once."""

    run_id: str
    finder: Finder
    mover: Mover
    journal: StateStore
    audit: Audit
    fence: Fence
    stop: asyncio.Event
    note: Callable[[Restored], Awaitable[None]]
    """Called with the progress after each batch."""
    failed: list[Deleted] = field(default_factory=list)
    """What the store would not do, for now."""
    entries: list[str] = field(default_factory=list)
    """Files through which readers open the table and that are there again."""

    async def run(self) -> Restored:
        """Restore batch by batch. What was done is always reported."""
        result, entrance = Restored(of=self.finder.taken.run_id), EntryBlock(self.finder)
        number = 0
        async for first, rows in self.finder.batches():
            for some in restore_finder.steps(rows):
                if self.stop.is_set():
                    raise interruption(self.stop)
                await self.fence.check()
                if shut := await entrance.why_blocked(some):
                    result = restore_finder.with_outcomes(result, some, await self.finder.left_out(some, shut))
                    continue
                record = BatchRecord(
                    run_id=self.run_id, number=number, first=first, count=len(some), fencing_token=self.fence.token
                )
                await self.audit.restoring(record, _audit_rows(some))
                await self.journal.begin_batch(record)
                outcomes = await self._moved(some)
                entrance.note(some, outcomes)
                self.entries.extend(
                    row.path for row, why in zip(some, outcomes, strict=True) if row.stage < 0 and not why
                )
                result = restore_finder.with_outcomes(result, some, outcomes)
                # The files are back: that fact must be written down even while we are being cancelled.
                await finish_shielded(self._write_down(record, some, outcomes, result))
                number += 1
        return result

    async def _moved(self, rows: Sequence[Candidate]) -> list[str | None]:
        """For each None if it is back, ALREADY_THERE, or why it is not."""
        taken = self.finder.taken
        marked = [row.path for row in rows if row.path in taken.markers]
        markers = [Marker(path=path, version=taken.markers[path]) for path in marked]
        answers = {one.path: one for one in await self.mover.uncover(markers)}
        if taken.trash is not None:
            moves = [
                Move(source=taken.trash.address(row.path), target=row.path)
                for row in rows
                if row.path not in taken.markers
            ]
            moved = await self.mover.back(moves)
            answers |= {move.target: one for move, one in zip(moves, moved, strict=True)}
        return [await self._outcome(row, answers.get(row.path)) for row in rows]

    async def _outcome(self, row: Candidate, answer: Deleted | None) -> str | None:
        match answer.status if answer else None:
            case DeleteStatus.DELETED:
                return None
            case DeleteStatus.SPARED:
                return ALREADY_THERE
            case DeleteStatus.FAILED | DeleteStatus.NOT_SENT if answer:
                self.failed.append(answer)
                return answer.why or "no reason given"
        if await self.finder.stands(row.path):
            return ALREADY_THERE
        if answer is not None and answer.why:
            return answer.why
        return self.finder.taken.why_gone

    async def _write_down(
        self, record: BatchRecord, rows: Sequence[Candidate], outcomes: Sequence[str | None], result: Restored
    ) -> None:
        failed = sum(bool(why) for why in outcomes)
        try:
            await self.audit.restored(record, _audit_rows(rows, outcomes))
        finally:
            await self.journal.finish_batch(replace(record, state=BatchState.DONE, failed=failed))
        await self.note(result)


def _audit_rows(rows: Sequence[Candidate], outcomes: Sequence[str | None] | None = None) -> pa.RecordBatch:
    """What the audit trail records: without outcomes, that they are about to come back."""
    names = {None: "restored", ALREADY_THERE: "already_there"}
    columns = [
        pa.array([row.path for row in rows], pa.string()),
        pa.array([row.size_bytes for row in rows], pa.int64()),
        pa.array([names.get(one, "not_restored") for one in outcomes or [None] * len(rows)], pa.string()),
        pa.array([one or None for one in outcomes or [None] * len(rows)], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RESTORE_RESULTS_SCHEMA)
