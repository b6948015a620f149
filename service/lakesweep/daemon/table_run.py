"""One table's run: claim it, see whether it is still due, run it, write down when it is due again.

The due time is read and written under the lease, so that of several replicas only one works on a table per cycle.
Nothing that happens to the table gets out of here, except a cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from lakesweep.aio import StopRequest
from lakesweep.cleanup.run_recorder import close_interrupted
from lakesweep.daemon import cadence, due_times, holds, request_budget, run_results
from lakesweep.daemon.due_times import Stopped
from lakesweep.daemon.known_tables import Entry
from lakesweep.daemon.lease import HeldLease
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import LakesweepError, LeaseLost, Refused, StateError
from lakesweep.model.run import CleanupRun, ListingMode, Outcome
from lakesweep.ports.state import DueTime
from lakesweep.settings.cascade import cleanup_for, policy_for
from lakesweep.settings.schema import Settings
from lakesweep.telemetry import logs

log = structlog.get_logger()

SCHEDULE = Trigger(by=TriggeredBy.SCHEDULE, who="schedule")


@dataclass(slots=True, kw_only=True)
class ScheduledRun:
    """A table that is being worked on."""

    entry: Entry
    run_id: str
    since: datetime
    requested: bool = False
    """By a person, so it does not matter whether it is due."""
    execute: bool | None = None
    trigger: Trigger = SCHEDULE
    stop: StopRequest = field(default_factory=StopRequest)
    stopped: Stopped = Stopped.NO
    """Why, if a stop was requested."""

    def end(self, why: Stopped) -> None:
        if self.stopped is Stopped.NO:
            self.stopped = why
        self.stop.set()


def overruled(scheduled: ScheduledRun, settings: Settings) -> bool:
    """Do new settings forbid or change what a run under way does? One that only plans changes nothing."""
    ref, before = scheduled.entry.work.ref, scheduled.entry.app.settings
    rules = policy_for(before, ref.tenant, ref.dataset, ref.name, execute=scheduled.execute)
    if rules.dry_run:
        return False
    tenant, old_tenant = settings.tenant(ref.tenant), before.tenant(ref.tenant)
    dataset = tenant.dataset(ref.dataset) if tenant else None
    if tenant is None or dataset is None or old_tenant is None:
        return True
    if (tenant.root, dataset) != (old_tenant.root, old_tenant.dataset(ref.dataset)):
        return True
    was, stays = (cleanup_for(one, ref.tenant, ref.dataset, ref.name).enabled for one in (before, settings))
    return (was and not stays) or policy_for(
        settings, ref.tenant, ref.dataset, ref.name, execute=scheduled.execute
    ) != rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """What came of it."""

    due: DueTime | None = None
    """When the table is due again, if that is known."""
    look_again_at: datetime | None = None
    """Another replica works on it: trying earlier is pointless."""
    ran: bool = False


async def run_scheduled(scheduled: ScheduledRun, jitter: Callable[[], float]) -> RunEnd:
    """Run it. The lease comes first; without it nothing is decided about the table."""
    app, ref = scheduled.entry.app, scheduled.entry.work.ref
    with logs.about(ref, scheduled.run_id):
        try:
            async with app.claimed(ref, scheduled.run_id) as held:
                return await _run_claimed(scheduled, held, jitter)
        except (Refused, LeaseLost) as exc:
            reason = exc.code if isinstance(exc, Refused) else "lease_lost"
            app.metrics.count_skip(ref, reason)
            log.info("table_skipped", reason=reason)
            await _record_for_requester(scheduled, run_results.not_started(scheduled.run_id, ref, exc, app.clock.now()))
            pause = timedelta(seconds=app.settings.daemon.lease_seconds / 2)
            return RunEnd(look_again_at=app.clock.now() + pause)
        except LakesweepError as exc:
            # Only the state store can fail here; what is written down now is for this process alone.
            run = _not_started(scheduled, exc)
            return RunEnd(
                due=due_times.after_run(run, scheduled.entry.schedule, None, app.clock.now(), jitter=jitter())
            )
        except Exception:
            app.metrics.count_panic(ref)
            log.exception("run_panicked")
            return RunEnd(due=await _after_panic(scheduled), ran=True)


async def _run_claimed(scheduled: ScheduledRun, held: HeldLease, jitter: Callable[[], float]) -> RunEnd:
    app, entry = scheduled.entry.app, scheduled.entry
    known = await app.state.get_due(entry.label)
    now = app.clock.now()
    if not scheduled.requested:
        if due_times.due_at(known, entry.schedule, now) > now:
            return RunEnd(due=known)
        if interrupted := await _after_interruption(scheduled, known):
            return RunEnd(due=interrupted)
    chosen = await cadence.recall(app.state, entry.label) if entry.schedule.adaptive else None
    lists = scheduled.requested or (chosen is not None and chosen.next_listing <= now)
    try:
        run = await app.run(
            await app.discovery.reopened(entry.work),
            execute=scheduled.execute,
            stop=scheduled.stop,
            run_id=scheduled.run_id,
            held=held,
            trigger=scheduled.trigger,
            listing=ListingMode.ALWAYS if lists else ListingMode.WHEN_DUE,
            regular_wait=entry.schedule.wait(now),
        )
    except LakesweepError as exc:
        run = _not_started(scheduled, exc)
    await _record_for_requester(scheduled, run)
    with suppress(StateError):
        await request_budget.count(app.state, run, app.clock.now())
    if scheduled.requested and run.outcome is Outcome.DRY_RUN:
        return RunEnd(due=known, ran=True)  # somebody wanted to look; the regular cycle is not put off by it
    stopped = scheduled.stopped if run.outcome is Outcome.FAILED else Stopped.NO
    due = due_times.after_run(run, entry.schedule, known, app.clock.now(), jitter=jitter(), stopped=stopped)
    try:
        await held.check()
        if due.failures == 0 and stopped is Stopped.NO:
            chosen = await cadence.choose_after(app.state, run, entry.schedule.adaptive, app.clock.now())
            due = replace(due, next_due=chosen.next_look) if chosen else due
        await app.state.set_due(due)
    except StateError as exc:
        log.warning("due_time_not_saved", reason=str(exc))
    return RunEnd(due=due, ran=True)


async def _after_interruption(scheduled: ScheduledRun, known: DueTime | None) -> DueTime | None:
    """A run whose process died counts as a failure: what killed it (the memory that this table takes) may do so again.
    The next run waits as after any failure, and after several in a row for a person. None if there was none."""
    app, entry = scheduled.entry.app, scheduled.entry
    now = app.clock.now()
    if not await close_interrupted(app.state, entry.label, now):
        return None
    due = due_times.after_panic(entry.label, entry.schedule, known, now, due_times.INTERRUPTED)
    await app.state.set_due(due)
    await holds.hold_if_interrupted(app.state, entry.label, now)
    app.metrics.count_skip(entry.work.ref, due_times.INTERRUPTED)
    return due


def _not_started(scheduled: ScheduledRun, exc: LakesweepError) -> CleanupRun:
    app = scheduled.entry.app
    run = run_results.not_started(scheduled.run_id, scheduled.entry.work.ref, exc, app.clock.now())
    app.metrics.count_run(run)
    run_results.log_result(run)
    return run


async def _record_for_requester(scheduled: ScheduledRun, run: CleanupRun) -> None:
    """With the run's id its requester can look up how it ended, also if it ended before it was recorded."""
    if scheduled.requested:
        with suppress(StateError):  # it is there already, as nearly always
            await scheduled.entry.app.state.start_run(run)


async def _after_panic(scheduled: ScheduledRun) -> DueTime:
    app, entry = scheduled.entry.app, scheduled.entry
    before = None
    with suppress(StateError):
        before = await app.state.get_due(entry.label)
    due = due_times.after_panic(entry.label, entry.schedule, before, app.clock.now())
    with suppress(StateError):
        await app.state.set_due(due)
    return due
