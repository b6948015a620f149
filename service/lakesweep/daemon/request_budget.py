"""How many requests a tenant's tables may take in a day, and which tables wait for the next one.

What was sent is summed up per tenant and day (UTC) in the state store. Replicas that write at the same moment may lose
one another's count; the budget is for money, not for safety. What somebody requests by hand is counted and never
postponed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from lakesweep.daemon import cadence
from lakesweep.daemon.app import App
from lakesweep.daemon.limits import Due
from lakesweep.model import run_document
from lakesweep.model.run import CleanupRun
from lakesweep.ports.state import StateStore

log = structlog.get_logger()

REASON = "requests_per_day"
LOOK_AGAIN = timedelta(minutes=10)
_UNKNOWN_COST = 100
"""Of a table that has never run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """A table that is due: what a cycle of it may take, and what it may free."""

    table: str
    requests: int
    bytes: int


def fitting(wishes: Sequence[ExpectedRun], left: int) -> set[str]:
    """The tables that may go: the most wasteful first, as long as there is room."""
    going: set[str] = set()
    for wish in sorted(wishes, key=lambda wish: (-wish.bytes, wish.requests, wish.table)):
        if wish.requests <= left:
            going.add(wish.table)
            left -= wish.requests
    return going


async def postponed(app: App, due: Sequence[Due], running: Collection[str], now: datetime) -> set[str]:
    """Which of these tables wait for the next day. Logged."""
    late: set[str] = set()
    for tenant in app.settings.tenants:
        waiting = [one.table for one in due if one.tenant == tenant.id]
        if tenant.requests_per_day is None or not waiting:
            continue
        under_way = [table for table in running if table.partition("/")[0] == tenant.id]
        last = await app.state.last_runs([*waiting, *under_way])
        left = tenant.requests_per_day - await spent(app.state, tenant.id, now)
        left -= sum(wish.requests for wish in _expected_runs(under_way, last))
        going = fitting(list(_expected_runs(waiting, last)), left)
        if waits := sorted(set(waiting) - going):
            late |= set(waits)
            log.warning(
                "tables_postponed",
                tenant=tenant.id,
                tables=len(waits),
                first=waits[0],
                requests_left=max(0, left),
                hint="raise requests_per_day of the tenant, or listing_interval_hours",
            )
    return late


async def spent(state: StateStore, tenant: str, now: datetime) -> int:
    """Requests of the tenant's runs on the day of that moment."""
    return int(await state.recall(_name(tenant, now)) or 0)


async def count(state: StateStore, run: CleanupRun, now: datetime) -> None:
    total, tenant = run.sent.requests.total, str(run.table.tenant)
    await state.remember(_name(tenant, now), str(await spent(state, tenant, now) + total))


def _expected_runs(tables: Iterable[str], last: dict[str, run_document.Run]) -> Iterable[ExpectedRun]:
    for table in tables:
        run = last.get(table)
        if run is None:
            yield ExpectedRun(table=table, requests=_UNKNOWN_COST, bytes=0)
            continue
        yield ExpectedRun(table=table, requests=cadence.requests_of(run), bytes=run["orphans"]["bytes"])


def _name(tenant: str, now: datetime) -> str:
    return f"requests:{tenant}:{now:%Y-%m-%d}"
