"""Tables on which nothing is executed until a person says so: paused ones, and those where something got lost.

Some refusals must outlive their cause. That a tag vanished together with our expiry commit shows in the metadata log
for a while only; the files it pinned must not be deleted when the log has moved on. So such a run leaves a hold behind.
"""

from __future__ import annotations

import glob
from datetime import datetime
from fnmatch import fnmatchcase

import structlog

from lakesweep.cleanup import table_notes
from lakesweep.daemon import targets
from lakesweep.daemon.hold_index import MAX_HOLDS, HoldIndex
from lakesweep.model import refusal
from lakesweep.model.errors import Refused, UnknownTable
from lakesweep.model.run import CleanupRun
from lakesweep.model.run_document import INTERRUPTED
from lakesweep.model.table import BARE_TENANT, GHOSTS, is_ghost
from lakesweep.ports.state import Hold, StateStore
from lakesweep.settings.schema import Settings

log = structlog.get_logger()

OURSELVES = "lakesweep"
INTERRUPTIONS = 3
"""Runs in a row that their process did not outlive; then a person must look."""
EVERYTHING = "*"
_RUNS_LOOKED_AT = 500
"""To report which runs a stop reaches; it reaches all of them."""


async def stop(state: StateStore, settings: Settings, hold: Hold) -> list[str]:
    """Hold tables in an emergency, however many holds there are: every running sweep checks holds before each request,
    on any replica. Returns the ids of the runs that this reaches."""
    _check_known(settings, hold.scope)
    await state.set_hold(hold)
    held = HoldIndex([hold])
    recent = await state.list_runs(limit=_RUNS_LOOKED_AT)
    return [run["run_id"] for run in recent if run["outcome"] is None and held.covering(run["table"])]


async def pause(state: StateStore, settings: Settings, hold: Hold) -> None:
    """Hold tables. A typo in a name must not look like a pause: raises UnknownTable."""
    _check_known(settings, hold.scope)
    held = HoldIndex(await state.holds())
    tenant = hold.scope.partition("/")[0]
    if held.count(tenant) >= MAX_HOLDS and hold.scope not in {one.scope for one in held.holds}:
        raise Refused(
            "too_many_holds", f"{tenant} has {MAX_HOLDS} holds already; pause its dataset or the whole tenant"
        )
    await state.set_hold(hold)


def _check_known(settings: Settings, scope: str) -> None:
    known = [(tenant.id, dataset.id) for tenant in settings.tenants for dataset in tenant.datasets]
    bare = fnmatchcase(BARE_TENANT, scope.partition("/")[0])
    ghosts = [(tenant.id, GHOSTS) for tenant in settings.tenants]
    if not bare and not any(targets.may_match(scope, *names) for names in (*known, *ghosts)):
        hint = targets.suggestion(scope, [name for one in known for name in (one[0], "/".join(one))])
        raise UnknownTable(f"nothing to pause: {scope!r} names no configured tenant or dataset{hint and ': ' + hint}")


async def refuse_held(state: StateStore, label: str, *other_names: str, tenant: str | None = None) -> None:
    """Raise Refused while a hold covers the table, by whichever of its names; or, where a tenant is given, anything of
    that tenant but another ghost."""
    held = HoldIndex(await state.holds())
    for name in (label, *other_names):
        hold = held.covering(name)
        if hold is not None:
            raise Refused("held", sentence(label, hold))
    for hold in held.holds:
        if tenant and fnmatchcase(tenant, hold.scope.partition("/")[0]) and not is_ghost(hold.scope):
            raise Refused("held", f"{label} may be what is left of a held table: {sentence(hold.scope, hold)}")


def sentence(label: str, hold: Hold) -> str:
    """A run's document is read by its tenant too, who must not see who holds several tenants, and why."""
    own = hold.scope.partition("/")[0] == label.partition("/")[0]
    by = f" by {hold.by}" if own else " by an administrator"
    why = f" ({hold.reason})" if own and hold.reason else ""
    since = f"{hold.since:%Y-%m-%d %H:%M} UTC"
    until = f" until {hold.ends_at:%Y-%m-%d %H:%M} UTC" if hold.ends_at else ""
    return f"{label} is held since {since}{until}{by}{why}; `lakesweep resume '{hold.scope}'` lifts the hold"


async def hold_if_interrupted(state: StateStore, label: str, now: datetime) -> None:
    """Hold a table whose runs end with their process again and again."""
    latest = await state.list_runs(table=label, limit=INTERRUPTIONS)
    if len(latest) < INTERRUPTIONS or not all(run["interrupted"] for run in latest):
        return
    what = (latest[0]["reason"] or "").removeprefix(INTERRUPTED).strip()
    reason = (
        f"the last {INTERRUPTIONS} runs ended with their process, perhaps because it ran out of memory: "
        f"{what}; give it more memory or use Spark, then resume"
    )
    log.warning("table_held", table=label, reason=reason)
    await state.set_hold(Hold(scope=glob.escape(label), since=now, by=OURSELVES, reason=reason))


async def hold_if_lasting(state: StateStore, run: CleanupRun, now: datetime) -> None:
    """Keep a refusal that must not be forgotten."""
    if run.refusal is not None and refusal.consequences(run.refusal.code).holds_table:
        scope = glob.escape(run.table.label)
        await state.set_hold(Hold(scope=scope, since=now, by=OURSELVES, reason=run.refusal.reason))
        if run.refusal.code == refusal.RefusalCode.LOG_SET_BACK:
            await table_notes.accept_set_back(state, run.table.label)
