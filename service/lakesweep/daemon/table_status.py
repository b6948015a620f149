"""What is known of a table: its row in lists, its snapshots, its next cycle and why that comes then. And what a plan
would do with one file, and why. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakesweep.admin import documents
from lakesweep.cleanup import lake_report
from lakesweep.cleanup.explain import Explainer, Explanation, with_confirmation, with_restores
from lakesweep.cleanup.report import hold_document, iso_utc
from lakesweep.daemon import cadence, cycle_setup, run_results, targets
from lakesweep.daemon.cadence import Cadence
from lakesweep.daemon.due_times import Schedule
from lakesweep.daemon.targets import Work
from lakesweep.model import run_document
from lakesweep.model.errors import LakesweepError, SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.state import DueTime, Hold, StateStore

if TYPE_CHECKING:
    from lakesweep.daemon.app import App
    from lakesweep.daemon.known_tables import Entry

SNAPSHOTS_SHOWN = 500
"""The newest ones; a table may have a hundred thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One line of `lakesweep tables`."""

    ref: TableRef
    location: str | None
    problem: str | None
    last_run: run_document.Run | None
    paused: bool
    cadence: Cadence | None = None
    """As it was last chosen, where it is adaptive."""

    @property
    def document(self) -> run_document.Table:
        chosen = self.cadence
        return {
            "table": self.ref.label,
            "format": self.ref.format,
            "location": self.location,
            "problem": self.problem,
            "last_run": self.last_run,
            "estimate": run_document.next_cycle(self.last_run),
            "paused": self.paused,
            "next_expiry": iso_utc(chosen.next_look if chosen else None),
            "next_listing": iso_utc(chosen.next_listing if chosen else None),
            "cadence": chosen.why if chosen else None,
        }


async def of(work: Work, state: StateStore, holds: Sequence[Hold]) -> TableStatus:
    runs = await state.list_runs(table=work.ref.label, limit=1)
    location, problem = await _place(work)
    paused = any(targets.covers(hold.scope, work.ref.label) for hold in holds)
    return TableStatus(
        ref=work.ref,
        location=location,
        problem=problem,
        last_run=runs[0] if runs else None,
        paused=paused,
        cadence=await cadence.recall(state, work.ref.label),
    )


async def _place(work: Work) -> tuple[str | None, str | None]:
    if work.table is None:
        return None, str(work.problem)
    try:
        return (await work.table.load()).location.raw, None
    except LakesweepError as exc:
        place = work.table.place()
        return place.raw if place else None, str(exc)
    except Exception as exc:  # noqa: BLE001 - a bug that one table meets must not hide the others
        return None, str(run_results.unexpected(exc))


async def detail(app: App, entry: Entry, next_due: datetime | None) -> documents.TableDetail:
    """`next_due` is what the scheduler knows."""
    state, label, now = app.state, entry.label, app.clock.now()
    held = [hold for hold in await state.holds() if targets.covers(hold.scope, label) or hold.scope == label]
    figures = await state.run_figures(now - timedelta(days=lake_report.TREND_DAYS), table=label)
    chosen = await cadence.recall(state, label) if entry.schedule.adaptive is not None else None
    due = await state.get_due(label)
    because = why_then(entry.schedule, due, held, enabled=entry.enabled, chosen=chosen.why if chosen else None)
    return {
        "table": label,
        "next_due": iso_utc(next_due) if entry.enabled else None,
        "next_expiry": iso_utc(chosen.next_look) if chosen else None,
        "next_listing": iso_utc(chosen.next_listing) if chosen else None,
        "next_because": because,
        "holds": [hold_document(hold) for hold in held],
        "trend": lake_report.trend(figures, now.date()),
    }


def why_then(
    schedule: Schedule, due: DueTime | None, held: list[Hold], *, enabled: bool, chosen: str | None = None
) -> str:
    """Why the next cycle comes when it comes, in one sentence. Pure."""
    if not enabled:
        return "the service does not clean it: orphan_cleanup.enabled is false"
    if held:
        last = max(held, key=lambda hold: (hold.ends_at is None, hold.ends_at or hold.since))
        until = f"until {last.ends_at:%Y-%m-%d %H:%M} UTC" if last.ends_at else "until somebody resumes it"
        return f"it is paused {until}; after that it runs when it is due"
    if due is None or due.last_finished is None:
        return "it has never run, so it runs at once"
    if due.failures:
        runs = "the last run" if due.failures == 1 else f"the last {due.failures} runs"
        return f"{runs} did not end well, so it is retried before its regular time"
    hours = schedule.interval / timedelta(hours=1)
    interval = f"cleanup_interval_hours = {hours:g}, counted from its last cycle"
    return chosen or (f"by its cron expression, {schedule.cron}" if schedule.cron else interval)


async def snapshots(app: App, entry: Entry) -> documents.Snapshots:
    """As its metadata has them now. No listing, no commit."""
    work = entry.work
    view = await work.opened().load()
    expiry = view.plan_expiry(cycle_setup.policy(app, work, execute=False), app.clock.now())
    kept = {one.id: one.why for one in expiry.keep}
    newest = sorted(view.snapshots, key=lambda one: (one.committed_at, one.id), reverse=True)
    going = {one.id for one in expiry.expire}
    return {
        "table": entry.label,
        "head": view.head,
        "total": len(newest),
        "expiring": len(going),
        "skipped": expiry.skipped,
        "snapshots": [
            {
                "id": one.id,
                "committed_at": iso_utc(one.committed_at),
                "expires": one.id in going,
                "why": kept.get(one.id, "no rule keeps it any longer" if one.id in going else "the format keeps it"),
                "pins": list(one.pins),
            }
            for one in newest[:SNAPSHOTS_SHOWN]
        ],
    }


async def explain(
    app: App, path: str, *, target: str | None, format: FormatName | None, root: str | None
) -> Explanation:
    location = targets.file_location(path)
    if location is None:
        raise SettingsError(f"{path!r} is not the full address of a file (expected s3://…, file://… or /path)")
    work, now = await _owner_of(app, location, target, format=format, root=root), app.clock.now()
    explainer = Explainer(
        table=work.opened(),
        storage=app.adapters.storage(work.tenant, work.read_root),
        engine=app.adapters.inprocess(work.tenant, work.read_root),
        policy=cycle_setup.policy(app, work, execute=False),
        clock=app.clock,
    )
    explained, wait = await explainer.explain(location), explainer.policy.confirm_after
    explained = await with_confirmation(explained, wait, app.state, app.artifacts, now)
    return await with_restores(explained, app.state, app.trails.inspector().records)


async def _owner_of(
    app: App, location: Location, target: str | None, *, format: FormatName | None, root: str | None
) -> Work:
    if target is None and not app.discovery.datasets():
        raise UnknownTable("no dataset is configured: give the table as --target, or a settings file as --config")
    works = await app.discovery.resolve(target, format=format, root=root)
    for work in works:
        near = await cycle_setup.TableSurroundings(app=app, work=work).neighbours()
        places = near.places.get(work.ref, ())
        if any(place.contains(location) for place in places) or (target and len(works) == 1):
            return work
    raise UnknownTable(f"no {'matching' if target else 'configured'} table keeps files at {location}: give --target")
