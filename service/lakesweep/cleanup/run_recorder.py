"""Write down how a run ended: in the ledger, the audit trail and the state store. Decides nothing, deletes nothing.

What was done is done and counts. An end that cannot be written down makes the run a failed one that says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakesweep.cleanup.ledger import Ledger
from lakesweep.model.errors import LakesweepError, StateError
from lakesweep.model.run import CleanupRun, Outcome, Phase
from lakesweep.ports.audit import Audit
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore


@dataclass(frozen=True, kw_only=True)
class RunRecorder:
    """Where the end of one run is written down: `settle` what it has proven, then `finish`."""

    ledger: Ledger
    audit: Audit | None
    """None for a run that was not to change anything."""
    state: StateStore
    clock: Clock

    async def settle(self, run: CleanupRun) -> CleanupRun:
        """What the run has seen unreferenced. One that is cut off has proven nothing and does not get here."""
        try:
            await self.ledger.settle(run, self.clock.now())
        except LakesweepError as exc:
            return _unless_failed(run, f"what was seen unreferenced could not be written down: {exc}")
        return run

    async def finish(self, run: CleanupRun) -> CleanupRun:
        """The outcome."""
        run = await self._audited(replace(run, phase=Phase.FINISHED, finished_at=self.clock.now()))
        try:
            await self.state.update_run(run)
        except StateError as exc:
            # The next cycle finds the run open and closes it.
            reason = f"the outcome ({run.reason or run.outcome}) could not be recorded: {exc}"
            return replace(run, outcome=Outcome.FAILED, reason=reason)
        return run

    async def _audited(self, run: CleanupRun) -> CleanupRun:
        if self.audit is None:
            return run
        try:
            await self.audit.end(run)
        except LakesweepError as exc:
            return _unless_failed(run, f"{run.reason or run.outcome}; its end could not be recorded: {exc}")
        return run


def _unless_failed(run: CleanupRun, reason: str) -> CleanupRun:
    """Failed for this reason, unless it has failed for another one before."""
    return run if run.outcome is Outcome.FAILED else replace(run, outcome=Outcome.FAILED, reason=reason)
