"""Keep track of one run and record how it ended: in the ledger, the audit trail and the state store.

Decides nothing, deletes nothing. What was done counts: an error reports everything known up to it. If the end cannot be
recorded, the run has failed and says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakesweep.cleanup import interrupted_runs
from lakesweep.cleanup.ledger import Ledger
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.model.errors import LakesweepError, StateError
from lakesweep.model.requests import Expense, Requests
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal
from lakesweep.ports.run import Progress
from lakesweep.telemetry.requests import RequestCount


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
        await interrupted_runs.close_interrupted(self._ports.state, self.run.table.label, self.run.started_at)
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
        """Record what the run has seen unreferenced. A run that was cut off has proven nothing and does not get
        here."""
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
