"""Tables on which nothing is executed until a person says so: paused ones, and those where something got lost.

Some refusals must outlive their cause. That a tag vanished together with our expiry commit shows in the metadata log
for a while only; the files it pinned must not go when the log has rolled on. So such a run leaves a hold behind.
"""

from __future__ import annotations

import glob
from datetime import datetime
from fnmatch import fnmatchcase

import structlog

from lakesweep.daemon import targets
from lakesweep.daemon.hold_index import MAX_HOLDS, HoldIndex
from lakesweep.model import refusal
from lakesweep.model.errors import Refused, UnknownTable
from lakesweep.model.run import CleanupRun
from lakesweep.model.run_document import INTERRUPTED
from lakesweep.model.table import BARE_TENANT
from lakesweep.ports.state import Hold, StateStore
from lakesweep.settings.schema import Settings

log = structlog.get_logger()

OURSELVES = "lakesweep"
INTERRUPTIONS = 3
"""Runs in a row that their process did not outlive; then a person must look."""
EVERYTHING = "*"
_RUNS_LOOKED_AT = 500
"""To tell which runs a stop reaches; it reaches all of them."""


async def stop(state: StateStore, settings: Settings, hold: Hold) -> list[str]:
    """Hold tables back in an emergency, however many holds there are: every sweep under way asks for holds before each
    request, wherever it runs. The runs that this reaches, by id."""
    _check_known(settings, hold.scope)
    await state.set_hold(hold)
    held = HoldIndex([hold])
    recent = await state.list_runs(limit=_RUNS_LOOKED_AT)
    return [run["run_id"] for run in recent if run["outcome"] is None and held.covering(run["table"])]


async def pause(state: StateStore, settings: Settings, hold: Hold) -> None:
    """Hold tables back. A slip in a name must not look like a pause: raises UnknownTable."""
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
    if not bare and not any(targets.may_match(scope, *names) for names in known):
        raise UnknownTable(f"nothing to pause: no configured tenant or dataset matches {scope!r} names")


async def refuse_held(state: StateStore, label: str, *other_names: str) -> None:
    """Raise Refused while a hold covers the table, by whichever of its names."""
    held = HoldIndex(await state.holds())
    for name in (label, *other_names):
        hold = held.covering(name)
        if hold is not None:
            raise Refused("held", _sentence(label, hold))


def _sentence(label: str, hold: Hold) -> str:
    """A run's document is read by its tenant too: who holds several tenants, and why, is not its business."""
    own = hold.scope.partition("/")[0] == label.partition("/")[0]
    by = f" by {hold.by}" if own else " by an administrator"
    why = f" ({hold.reason})" if own and hold.reason else ""
    since = f"{hold.since:%Y-%m-%d %H:%M} UTC"
    return f"{label} is held since {since}{by}{why}; `lakesweep resume '{hold.scope}'` lifts the hold"


async def hold_if_interrupted(state: StateStore, label: str, now: datetime) -> None:
    """Hold a table back whose runs end with their process again and again."""
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
