"""One batch of a sweep: its place among those that run at the same time, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.model.files import DeletionReport, FailedDelete, Tally, Went
from lakesweep.ports.audit import DELETE_RESULTS_SCHEMA
from lakesweep.ports.deleter import Deleted, DeleteStatus
from lakesweep.ports.run import Slots


def audit_rows(going: pa.RecordBatch, answers: Sequence[Deleted]) -> pa.RecordBatch:
    columns = [
        going.column("path"),
        going.column("size_bytes"),
        pa.array([one.status for one in answers], pa.string()),
        pa.array([one.why and _storable(one.why) for one in answers], pa.string()),
        pa.array([one.went if one.status is DeleteStatus.DELETED else None for one in answers], pa.string()),
        pa.array([one.delete_marker for one in answers], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DELETE_RESULTS_SCHEMA)


def _storable(text: str) -> str:
    """A store's message may contain bytes that are not valid text. The outcome must be recorded all the same."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def deletion_report(going: pa.RecordBatch, answers: Sequence[Deleted]) -> DeletionReport:
    statuses = [one.status for one in answers]
    gone_now = statuses.count(DeleteStatus.DELETED)
    deleted = (
        going
        if gone_now == len(statuses)
        else going.filter(pa.array([one is DeleteStatus.DELETED for one in statuses]))
    )
    kinds = {
        kind: _tally(deleted.filter(pc.equal(deleted.column("kind"), kind)))
        for kind in deleted.column("kind").unique().to_pylist()
    }
    return DeletionReport(
        deleted=_tally(deleted),
        already_gone=statuses.count(DeleteStatus.ALREADY_GONE),
        failed=tuple(
            FailedDelete(path=one.path, why=one.why or "no reason given", kind=one.kind)
            for one in answers
            if one.status is DeleteStatus.FAILED
        ),
        by_kind=kinds,
        retained=_retained(going, answers),
    )


def _retained(going: pa.RecordBatch, answers: Sequence[Deleted]) -> dict[Went, Tally]:
    went = [one.went if one.status is DeleteStatus.DELETED else Went.FREED for one in answers]
    places = set(went) - {Went.FREED}
    return {where: _tally(going.filter(pa.array([one is where for one in went]))) for where in sorted(places)}


def _tally(rows: pa.RecordBatch) -> Tally:
    return Tally(files=rows.num_rows, bytes=pc.sum(rows.column("size_bytes"), min_count=0).as_py())


class BatchSlots:
    """Places for the batches of one sweep, inside those that all tables share."""

    def __init__(self, own: int, shared: Slots | None) -> None:
        self._places: list[Slots] = [asyncio.Semaphore(own), *([shared] if shared is not None else [])]

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[ExitStack]:
        """A slot, free again at the end of the block unless it was handed over."""
        with ExitStack() as slot:
            for place in self._places:
                await place.acquire()
                slot.callback(place.release)
            yield slot


def hand_over(slot: ExitStack) -> Callable[[object], None]:
    """From now on a task gives the slot back when it is done, even if it never began."""
    taken = slot.pop_all()
    return lambda _: taken.close()
