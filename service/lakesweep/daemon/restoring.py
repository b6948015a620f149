"""Restore a run on request: the table is paused first, then its lease is held while files are restored.

The restore is itself a run of the table: it has an id, a journal, an audit trail and an outcome, and it is repeated by
asking again.
"""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from lakesweep.aio import StopRequest, interruption
from lakesweep.cleanup import run_recorder
from lakesweep.cleanup.restore import Restore
from lakesweep.cleanup.restore_finder import Finder, refuse_nothing
from lakesweep.daemon.events import hold_fields
from lakesweep.daemon.holds import HoldIndex
from lakesweep.daemon.lease import HeldLease
from lakesweep.daemon.taken_run import TakenRun, Undone, look_for_head, remark
from lakesweep.model.access import Trigger
from lakesweep.model.errors import LakesweepError, Refused
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal, Restored
from lakesweep.model.table import TableRef
from lakesweep.ports.state import Hold
from lakesweep.ports.table import HasReaderHints

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

log = structlog.get_logger()

_EXTRA_SECONDS = 15
"""After the table was paused, a run in progress may take the length of a lease and this many seconds to end: by then
the lease of a process that was killed has expired."""


@dataclass(frozen=True, kw_only=True)
class Restoring:
    """One restore of one run."""

    app: App
    run_id: str
    """Of the run whose files are restored."""
    patterns: Sequence[str]
    trigger: Trigger
    admin: bool = True
    """Is it requested by somebody who sees all tenants?"""

    async def plan(self) -> Undone:
        taken = await TakenRun.known(self.app, self.run_id)
        return await self._planned(taken, await taken.finder(self.patterns))

    async def execute(self, new_id: str, stop: asyncio.Event | None = None) -> Undone:
        """Restore it. An error on the way becomes the run's outcome; if it cannot start, it raises."""
        taken = await TakenRun.known(self.app, self.run_id)
        finder, ref = await taken.finder(self.patterns), taken.ref
        kept = finder.taken.trash is not None or finder.taken.markers
        if taken.document["outcome"] is not None and not (kept and await finder.wants_any()):
            return await self._planned(taken, finder)  # nothing to bring back, so nothing to pause for
        stop = stop or StopRequest()
        await self._pause(ref)
        async with AsyncExitStack() as stack:
            held = await self._claim(stack, ref, new_id, stop)
            await run_recorder.close_interrupted(self.app.state, ref.label, self.app.clock.now())
            # If the run was still under way, it has taken more since, and only then knew where to.
            taken = await TakenRun.known(self.app, self.run_id)
            finder = await taken.finder(self.patterns)
            run = await self._run(taken, finder, new_id, held, stop)
        log.info("run_restored", restored_run=self.run_id, by=self.trigger.who, outcome=run.outcome)
        result = run.restored or Restored(of=self.run_id)
        stands = await look_for_head(taken.document, finder)
        return Undone(result=result, paused=True, run=run, taken=taken.document, head_stands=stands)

    async def held_scope(self) -> str | None:
        """The scope to resume so that the table is cleaned again; None if it is not paused. Of several holds one that
        does not end by itself."""
        document = await self.app.state.get_run(self.run_id)
        holds = await self.app.state.holds()
        for some in ([hold for hold in holds if hold.ends_at is None], holds):
            found = HoldIndex(some).covering(document["table"]) if document else None
            if found is not None:
                return found.scope
        return None

    async def _planned(self, taken: TakenRun, finder: Finder) -> Undone:
        held = await self.held_scope() is not None
        result, stands = await finder.plan(), await look_for_head(taken.document, finder)
        return Undone(result=result, paused=held, run=None, taken=taken.document, head_stands=stands)

    async def _run(
        self, taken: TakenRun, finder: Finder, new_id: str, held: HeldLease, stop: asyncio.Event
    ) -> CleanupRun:
        app, document, ref = self.app, taken.document, taken.ref
        begun = CleanupRun(
            id=new_id,
            table=ref,
            location=document["location"],
            started_at=app.clock.now(),
            phase=Phase.RESTORING,
            restored=Restored(of=self.run_id),
        )
        await app.state.start_run(begun)
        run = begun

        async def note(result: Restored) -> None:
            nonlocal run
            run = replace(run, restored=result)
            await app.state.update_run(run)

        audit = app.trails.open(new_id, ref, held.token, self.trigger)
        await audit.begin(begun)
        restore = Restore(
            run_id=new_id,
            finder=finder,
            mover=app.adapters.mover(taken.owner),
            journal=app.state,
            audit=audit,
            fence=held,
            stop=stop,
            note=note,
        )
        ended = await self._ended(restore, held)
        if restore.entries:
            await _update_hints(taken)
        missing = remark(document, head_stands=await look_for_head(document, finder))
        if missing and ended["outcome"] is Outcome.DONE:
            ended["reason"] = f"{ended['reason']}; {missing}"
        run = replace(run, **ended, phase=Phase.FINISHED, finished_at=app.clock.now())
        await audit.end(run)
        await app.state.update_run(run)
        return run

    async def _ended(self, restore: Restore, held: HeldLease) -> dict[str, Any]:
        so_far: dict[str, Any] = {}
        try:
            async with held.guarding():
                result = so_far["restored"] = await restore.run()
            if not restore.failed:
                refuse_nothing(result)
        except Refused as exc:
            refusal = Refusal(code=exc.code, reason=exc.reason)
            return {**so_far, "outcome": Outcome.REFUSED, "refusal": refusal, "reason": exc.reason}
        except LakesweepError as exc:
            return {"outcome": Outcome.FAILED, "reason": str(exc)}
        finally:
            await restore.mover.aclose()
        if restore.failed:
            first, count = restore.failed[0], len(restore.failed)
            reason = f"{count} file{'s' * (count != 1)} could not be restored (first: {first.path}: {first.why})"
            return {"restored": result, "outcome": Outcome.FAILED, "reason": reason}
        reason = f"restored {result.restored.files} of the files that run {self.run_id} deleted"
        return {"restored": result, "outcome": Outcome.DONE, "reason": reason}

    async def _pause(self, ref: TableRef) -> None:
        """A restored orphan would be deleted in the next cycle. A hold that ends by itself only postpones that."""
        app = self.app
        lasting = HoldIndex(hold for hold in await app.state.holds() if hold.ends_at is None)
        if lasting.covering(ref.label) is None:
            reason = f"run {self.run_id} was restored: look at the table, then resume it"
            scope, now = glob.escape(ref.label), app.clock.now()
            hold = Hold(scope=scope, since=now, by=self.trigger.who, reason=reason, by_admin=self.admin)
            # However many holds there are, and also of a table that is no longer configured: should it be again, the
            # restored files must not go in its first cycle.
            async with app.events.tightening("paused", hold.by, **hold_fields(hold)):
                await app.state.set_hold(hold)

    async def _claim(self, stack: AsyncExitStack, ref: TableRef, new_id: str, stop: asyncio.Event) -> HeldLease:
        """The table's lease, as soon as a run under way has heard of the pause."""
        for left in range(self.app.settings.daemon.lease_seconds + _EXTRA_SECONDS, -1, -1):
            if stop.is_set():
                raise interruption(stop)
            try:
                return await stack.enter_async_context(self.app.claimed(ref, new_id))
            except Refused:
                if not left:
                    raise
                await asyncio.sleep(1)
        raise AssertionError


async def _update_hints(taken: TakenRun) -> None:
    """Best effort: the files are there in any case, and a repeated restore tries it again."""
    try:
        table = await taken.open_table()
        if isinstance(table, HasReaderHints):
            await table.reopened()
    except LakesweepError as exc:
        log.warning("readers_not_told", table=taken.ref.label, reason=str(exc))
