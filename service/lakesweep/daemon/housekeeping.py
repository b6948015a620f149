"""Delete what is no longer needed: old runs with their plans, and leftovers of processes that were killed.

Touches the state store and the service's own files only, never a table. Trouble is logged and tried again later; any
replica may do it, also several at once.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from lakesweep.daemon import lake_report
from lakesweep.daemon.app import App
from lakesweep.daemon.clock import ClockWatch
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import Tally

log = structlog.get_logger()

EVERY_SECONDS = 3600.0
RUNS_AT_ONCE = 200
"""Each transaction is short: others wait for it."""
ENDED_HOLDS_DAYS = 7
"""How long a pause that has ended is still listed."""


async def run_once(app: App) -> int:
    """Clean up once. Returns the number of runs that were deleted."""
    now = app.clock.now()
    before = now - timedelta(days=app.settings.service.keep_runs_days)
    forgotten = 0
    while True:
        count, plans = await app.state.forget_runs(before, RUNS_AT_ONCE)
        for address in plans:
            await app.artifacts.discard(address)
        forgotten += count
        if count < RUNS_AT_ONCE:
            break
    await _forget_ended_holds(app)
    left = await asyncio.to_thread(app.artifacts.remove_leftovers, now)
    await _tidy_scratch(app)
    if forgotten or left:
        log.info("housekeeping_done", runs=forgotten, leftovers=left)
    return forgotten


async def _tidy_scratch(app: App) -> None:
    """A place that cannot be reached must not keep the rest from being done."""
    try:
        await app.adapters.tidy_scratch()
    except LakesweepError as exc:
        log.warning("scratch_not_tidied", reason=str(exc))


async def _forget_ended_holds(app: App) -> None:
    """Only with a trusted clock: one that was set ahead would end holds for good."""
    allowed = timedelta(minutes=app.settings.orphan_cleanup.max_clock_skew_minutes)
    if refusal := await ClockWatch(app.clock, app.state).check(allowed):
        log.warning("ended_holds_kept", reason=refusal.reason)
    else:
        await app.state.forget_ended_holds(app.clock.now() - timedelta(days=ENDED_HOLDS_DAYS))


async def look_for_ghosts(app: App) -> None:
    """Report the numbers of each tenant's ghosts, and search again when the settings say so. Only reports."""
    hours = app.settings.daemon.ghost_interval_hours
    for tenant in app.settings.tenants:
        last = await lake_report.last_look(app.state, tenant.id)
        if hours and (last is None or not last.at <= app.clock.now() < last.at + timedelta(hours=hours)):
            try:
                await app.ghosts(tenant.id)
            except LakesweepError as exc:
                log.warning("ghosts_unknown", tenant=tenant.id, reason=str(exc))
        elif last is not None:
            app.metrics.count_ghosts(tenant.id, Tally(files=last.count, bytes=last.bytes))
