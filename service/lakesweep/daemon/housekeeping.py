"""Forget what nobody will ask for any more: old runs with their plans, and leftovers of processes that were killed.

Touches the state store and the service's own files only, never a table. Trouble is logged and tried again later; any
replica may do it, also several at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog

from lakesweep.daemon.app import App
from lakesweep.model.errors import StateError

log = structlog.get_logger()

EVERY_SECONDS = 3600.0
RUNS_AT_ONCE = 200
"""Each transaction is short: others wait for it."""


async def run(current: Callable[[], App]) -> None:
    """Until cancelled, under whatever settings are the newest."""
    while True:
        try:
            await tidy(current())
        except StateError as exc:
            log.warning("housekeeping_put_off", reason=str(exc))
        await asyncio.sleep(EVERY_SECONDS)


async def tidy(app: App) -> int:
    """Once. How many runs were forgotten."""
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
    left = await asyncio.to_thread(app.artifacts.remove_leftovers, now)
    if forgotten or left:
        log.info("housekeeping_done", runs=forgotten, leftovers=left)
    return forgotten
