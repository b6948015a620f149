"""The executing half of a cycle: commit the expiry, sweep, and clean up afterwards. It starts from a checked plan."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from lakesweep.aio import interruption
from lakesweep.cleanup import table_notes, unchanged
from lakesweep.cleanup.check import check_again
from lakesweep.cleanup.delete_conditions import verify_unchanged
from lakesweep.cleanup.plan import Planned
from lakesweep.cleanup.revalidate import Revalidator
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.cleanup.run_recorder import RunRecorder
from lakesweep.cleanup.sweep import Sweep
from lakesweep.model.errors import LakesweepError, Refused
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Outcome, Phase
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.table import ClosesFirst, TableView


async def execute(ports: Ports, context: RunContext, recorder: RunRecorder, planned: Planned) -> None:
    if not context.execute:
        recorder.note(outcome=Outcome.DRY_RUN, reason="nothing was changed")
        return
    if not ports.table.executable:
        raise Refused(RefusalCode.PLAN_ONLY, _PLAN_ONLY)
    if context.stop.is_set():
        raise interruption(context.stop)
    await check_again(ports, context, planned.marked)
    recorder.note(trash=context.trash, table_uuid=planned.marked.state.table_uuid)
    await ports.audit.begin(recorder.run)
    recorder.note(phase=Phase.EXPIRING)
    after, committed = await _commit_expiry(ports, context, recorder, planned)
    await ports.state.update_run(recorder.note(phase=Phase.SWEEPING))
    noted = await _note_what_closes(ports)
    if await _sweep(ports, context, recorder, planned, committed, noted=noted):
        await ports.table.after_sweep(planned.marked.state, committed)
        await ports.state.set_pending_expiry(ports.table.ref.label, None, context.run_id)
        if noted:
            await table_notes.remember_closing_note(ports.state, ports.table.ref.label, "")
        if planned.place_is_own:
            await table_notes.remember_roots(ports.state, planned.marked.state)
        recorder.note(outcome=Outcome.DONE)
        await _note_for_the_next_cycle(ports, context, recorder, planned, after)


async def _note_for_the_next_cycle(
    ports: Ports, context: RunContext, recorder: RunRecorder, planned: Planned, after: TableView
) -> None:
    """Whether it needs no listing, or no work at all."""
    state = planned.marked.state
    if planned.orphans.listed:
        await table_notes.remember_swept(ports.state, state, at=planned.at)
    listed = await table_notes.last_listing(ports.state, state)
    await unchanged.remember(ports, context, recorder, planned, after=after, listed=listed)


async def _commit_expiry(
    ports: Ports, context: RunContext, recorder: RunRecorder, planned: Planned
) -> tuple[TableView, ExpiryPlan]:
    """The table as it is then, and what really expired."""
    if planned.expiry.empty:
        return planned.marked.state, planned.expiry
    state, label = planned.marked.state, ports.table.ref.label
    # A crash between this commit and the sweep must not lose which files the expiry released.
    if await ports.state.pending_expiry(label) is None:
        await ports.state.set_pending_expiry(label, state.head, context.run_id)
    await ports.audit.expiring(planned.expiry)
    await context.fence.check()
    # At the time of the plan: a clock that was changed in between must not expire more than was checked.
    after, committed = await ports.table.commit_expiry(state, context.policy, planned.at, context.fence)
    recorder.note(
        expiry=committed,
        expired_snapshots=tuple(snapshot.id for snapshot in committed.expire),
        expired_partitions=committed.partitions,
    )
    await ports.audit.expired(committed)
    return after, committed


async def _note_what_closes(ports: Ports) -> str:
    """Somebody may roll the table back to a snapshot that is being closed. After a crash the next cycle restores it."""
    table = ports.table
    noted = table.closing_note() if isinstance(table, ClosesFirst) else ""
    if noted:
        await table_notes.remember_closing_note(ports.state, table.ref.label, noted)
    return noted


async def _sweep(
    ports: Ports, context: RunContext, recorder: RunRecorder, planned: Planned, committed: ExpiryPlan, *, noted: str
) -> bool:
    """Delete what the plan names. False if some objects could not be deleted."""
    table = ports.table
    deleter = ports.open_deleter(planned.marked.state)
    sweeping = Sweep(
        run_id=context.run_id,
        plan=planned.orphans,
        match_by=planned.marked.state.layout.match_by,
        policy=context.policy,
        deleter=deleter,
        journal=ports.state,
        audit=ports.audit,
        fence=context.fence,
        revalidate=Revalidator(
            table=table,
            engine=planned.engine,
            planned=planned.marked,
            expiring=planned.expiry,
            committed=committed,
        ),
        stop=context.stop,
        progress=context.progress,
        recheck=partial(verify_unchanged, ports.storage) if planned.orphans.as_of else None,
        closed=table.closed if isinstance(table, ClosesFirst) else None,
        sending=table.sending if isinstance(table, ClosesFirst) else None,
        places=context.deletion_slots,
        check_not_held=ports.surroundings.check_not_held,
    )
    try:
        result = await sweeping.run()
    finally:
        # A sweep that is cancelled has deleted what it has deleted.
        recorder.note(deletion=sweeping.result.report, spared=sweeping.result.spared)
        await deleter.aclose()
    if result.stopped_by is not None or result.interrupted or result.report.failed:
        await _forget_what_was_not_closed(ports, context, noted)
    if result.stopped_by is not None:
        raise result.stopped_by
    if result.interrupted:
        raise interruption(context.stop)
    if result.report.failed:
        first = result.report.failed[0]
        recorder.fail(f"{len(result.report.failed)} objects could not be deleted (first: {first.path}: {first.why})")
        return False
    return True


async def _forget_what_was_not_closed(ports: Ports, context: RunContext, noted: str) -> None:
    """The next cycle must not restore a snapshot that this run did not begin to delete. If the note cannot be
    written, that cycle has to decide without it."""
    table = ports.table
    if isinstance(table, ClosesFirst) and noted != (begun := table.closing_note(begun=True)):
        with suppress(LakesweepError):
            await context.fence.check()
            await table_notes.remember_closing_note(ports.state, table.ref.label, begun)


_PLAN_ONLY = (
    "a bare Iceberg location has no catalog, so nothing proves which metadata is current: "
    "configure the table's catalog to execute this plan"
)
