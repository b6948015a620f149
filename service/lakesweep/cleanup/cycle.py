"""START READING HERE: one cycle over one table, straight down.

    skip what has not changed                                       `unchanged.py`
    load -> list, then mark and judge -> guards -> save the plan    `plan.py`, `check.py`: nothing changes
    -> commit the expiry -> sweep -> finish                         `execute.py`

Everything is planned and checked before anything changes: the expiry commit comes after the guards, so a
damaged table or a plan above its ceiling also keeps its snapshots. Between plan and sweep the head moves
(our own commit moves it, others may), and each batch is revalidated against the newest head.
"""

from __future__ import annotations

from lakesweep.aio import cancel_on
from lakesweep.cleanup import table_notes, unchanged
from lakesweep.cleanup.execute import execute
from lakesweep.cleanup.plan import plan
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.cleanup.run_recorder import RunRecorder
from lakesweep.model.errors import Indeterminate, LakesweepError, Refused
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import CleanupRun, Refusal
from lakesweep.ports.table import ClosesFirst
from lakesweep.telemetry.requests import counting


class Cycle:
    """One cycle. `run` may be called once."""

    def __init__(self, ports: Ports, context: RunContext) -> None:
        self._ports = ports
        self._context = context
        self._recorder = RunRecorder(ports, context)

    async def run(self) -> CleanupRun:
        """One table, whatever happens: trouble becomes the outcome, never an exception of the table's own."""
        ports, context, recorder = self._ports, self._context, self._recorder
        with counting(recorder.requests):
            await recorder.start()
            try:
                if not await unchanged.skip(ports, context, recorder):
                    await self._plan_and_execute()
            except Refused as exc:
                recorder.refuse(Refusal(code=exc.code, reason=exc.reason))
            except Indeterminate as exc:
                recorder.fail(str(exc), Refusal(code=RefusalCode.INDETERMINATE, reason=str(exc)))
            except LakesweepError as exc:
                recorder.fail(str(exc))
            await recorder.settle()
            return await recorder.finish()

    async def _plan_and_execute(self) -> None:
        ports, context, recorder = self._ports, self._context, self._recorder
        await self._reopen()
        planned = await cancel_on(context.stop, plan(ports, context, recorder), f"plan {ports.table.ref}")
        if planned.refusal:
            recorder.refuse(planned.refusal)
        else:
            await execute(ports, context, recorder, planned)

    async def _reopen(self) -> None:
        """Restore a snapshot that an interrupted sweep closed while somebody rolled the table back to it."""
        table = self._ports.table
        if self._context.execute and isinstance(table, ClosesFirst):
            closing_note = await table_notes.closing_note(self._ports.state, table.ref.label)
            if closing_note:
                await self._context.fence.check()
                await table.reopen(closing_note)

    async def abandon(self, why: LakesweepError) -> CleanupRun:
        """Finish a run that was cancelled from outside, with everything known up to then."""
        self._recorder.fail(str(why))
        return await self._recorder.finish()
