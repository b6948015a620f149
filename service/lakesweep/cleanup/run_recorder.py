"""Keep track of one run and record how it ended: in the ledger, the audit trail and the state store.

Decides nothing, deletes nothing. What was done counts: an error reports everything known up to it. If the end cannot be
recorded, the run has failed and says so.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog

from lakesweep.cleanup.ledger import Ledger
from lakesweep.cleanup.report import interrupted_document
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.model import run_document
from lakesweep.model.errors import LakesweepError, StateError
from lakesweep.model.files import DeletionReport, Tally, Went
from lakesweep.model.requests import Expense, Requests
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal
from lakesweep.ports.run import Progress
from lakesweep.ports.state import BatchRecord, BatchState, StateStore
from lakesweep.telemetry.requests import RequestCount

log = structlog.get_logger()


class RunRecorder:
    """The run as it is known so far (`run`), and where its end is written down."""

    def __init__(self, ports: Ports, context: RunContext) -> None:
        self._ports = ports
        self._progress = context.progress
        self._prices = context.prices
        self.requests = RequestCount()
        """What the run has sent so far; see `telemetry.requests`."""
        self._audit = ports.audit if context.execute else None
        self.run = CleanupRun(id=context.run_id, table=ports.table.ref, location=None, started_at=ports.clock.now())
        self.ledger = Ledger(
            table=ports.table.ref.label,
            run_id=context.run_id,
            confirm_after=context.policy.confirm_after,
            state=ports.state,
            artifacts=ports.artifacts,
            fence=context.fence,
        )

    async def start(self) -> None:
        """The run begins; one of this table that was interrupted before is closed."""
        self.run = replace(self.run, started_at=self._ports.clock.now())
        await close_interrupted(self._ports.state, self.run.table.label, self.run.started_at)
        await self._ports.state.start_run(self.run)

    def note(self, **changes: Any) -> CleanupRun:
        self.run = replace(self.run, **changes)
        self._progress(Progress(phase=self.run.phase))
        return self.run

    def refuse(self, refusal: Refusal) -> None:
        self.run = replace(self.run, refusal=refusal, outcome=Outcome.REFUSED, reason=refusal.reason)

    def fail(self, reason: str, refusal: Refusal | None = None) -> None:
        self.run = replace(self.run, refusal=refusal, outcome=Outcome.FAILED, reason=reason)

    async def settle(self) -> None:
        """Record what the run has seen unreferenced. A run that was cut off has proven nothing: this is
        not called for it."""
        place = self._ports.table.place() if self.run.location is None else None
        if place is not None:  # a table that could not be loaded has a place all the same
            self.run = replace(self.run, location=place.raw)
        try:
            await self.ledger.settle(self.run, self._ports.clock.now())
        except LakesweepError as exc:
            self.run = _unless_failed(self.run, f"the ledger of unreferenced files could not be written: {exc}")

    async def finish(self) -> CleanupRun:
        finished_at = self._ports.clock.now()
        run = await self._audited(replace(self.run, phase=Phase.FINISHED, finished_at=finished_at))
        run = replace(run, sent=self.priced(self.requests.so_far, self.elapsed_seconds))
        try:
            await self._ports.state.update_run(run)
        except StateError as exc:
            # The next cycle finds the run open and closes it.
            reason = f"the outcome ({run.reason or run.outcome}) could not be recorded: {exc}"
            return replace(run, outcome=Outcome.FAILED, reason=reason)
        return run

    @property
    def elapsed_seconds(self) -> float:
        return max(0.0, (self._ports.clock.now() - self.run.started_at).total_seconds())

    def priced(self, requests: Requests, seconds: float) -> Expense:
        return Expense(
            requests=requests, seconds=seconds, cost=self._prices.of(requests), currency=self._prices.currency
        )

    async def _audited(self, run: CleanupRun) -> CleanupRun:
        if self._audit is None or run.unchanged:  # which did nothing worth a record
            return run
        try:
            await self._audit.end(run)
        except LakesweepError as exc:
            return _unless_failed(run, f"{run.reason or run.outcome}; its end could not be recorded: {exc}")
        return run


def _unless_failed(run: CleanupRun, reason: str) -> CleanupRun:
    """Failed for this reason, unless it has failed for another one before."""
    return run if run.outcome is Outcome.FAILED else replace(run, outcome=Outcome.FAILED, reason=reason)


async def close_interrupted(state: StateStore, table: str, now: datetime) -> int:
    """Close every open run of the table with what its journal says. Returns how many there were. Only the holder of the
    table's lease may call this: then nobody else works on an open run.

    The saved plan is not continued, on purpose. Before another file could be deleted, every reference would have to be
    read again and every guard checked again: that is a new plan, except for the listing. Files that the dead run
    deleted are not listed any more, so the new plan is exactly what is left. What a listing cannot show is in the state
    store: the head before an expiry that was committed (`pending_expiry`), and the ledger. So a cycle that is killed
    at any point and run again ends in the same state.
    """
    closed = 0
    for document in await state.open_runs(table):
        plan = await state.get_plan(document["run_id"])
        journal = await state.journal(document["run_id"])
        counted = interrupted_document(
            document,
            what=_what(document, journal, planned=plan is not None),
            finished_at=now,
            deletion=_deletion(journal),
            plan=Tally(files=plan.candidates, bytes=plan.bytes) if plan else Tally(),
        )
        if await state.close_run(counted):
            closed += 1
            log.warning("run_interrupted", interrupted_run=document["run_id"], reason=counted["reason"])
    return closed


def _deletion(journal: list[BatchRecord]) -> DeletionReport:
    done = [batch for batch in journal if batch.state is BatchState.DONE]
    deleted = Tally(files=sum(batch.deleted for batch in done), bytes=sum(batch.bytes for batch in done))
    retained = {
        Went.TRASH: Tally(bytes=sum(batch.trash_bytes for batch in done)),
        Went.VERSIONS: Tally(bytes=sum(batch.versions_bytes for batch in done)),
    }
    return DeletionReport(deleted=deleted, already_gone=sum(batch.already_gone for batch in done), retained=retained)


def _what(document: run_document.Run, journal: list[BatchRecord], *, planned: bool) -> str:
    if document["restored"] is not None:
        of = document["restored"]["run_id"]
        what = f"its process died while restoring the files of run {of}: `lakesweep restore {of}` continues"
    elif not planned:
        what = f"its process died while {document['phase']}, before there was a plan"
    elif not journal:
        what = "its process died after the plan was made and before the first file was deleted"
    else:
        unknown = [batch for batch in journal if batch.state is BatchState.INTENT]
        what = f"its process died after {len(journal) - len(unknown)} batches"
        if unknown:
            files = sum(batch.count for batch in unknown)
            what += f"; {len(unknown)} more ({files} files) were started and may or may not have been deleted"
    return f"{what}; the table is planned again"
