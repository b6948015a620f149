"""Tables on which nothing is executed until a person says so: paused ones, and those where something got lost.

Some refusals must outlive their cause. That a tag vanished together with our expiry commit shows in the metadata log
for a while only; the files it pinned must not be deleted when the log has moved on. So such a run leaves a hold behind.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import TYPE_CHECKING

import structlog

from lakesweep.cleanup import table_notes
from lakesweep.daemon import targets
from lakesweep.daemon.events import hold_fields
from lakesweep.model import refusal
from lakesweep.model.errors import Refused, SettingsError, UnknownTable
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import CleanupRun
from lakesweep.model.run_document import INTERRUPTED
from lakesweep.model.table import BARE_TENANT, GHOSTS, is_ghost
from lakesweep.ports.state import Hold, StateStore

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

log = structlog.get_logger()

MAX_HOLDS = 200
"""Of one tenant. A person who holds more tables than that pauses their dataset or tenant instead."""
OURSELVES = "lakesweep"
INTERRUPTIONS = 3
"""After this many runs in a row whose process died, a person must look."""
EVERYTHING = "*"
_RUNS_LOOKED_AT = 500
"""To report which runs a stop reaches; it reaches all of them."""
_PATTERN = re.compile(r"[*?[]")


class HoldIndex:
    """Every hold there is at one moment, queried quickly for many tables and many holds. Pure.

    A scope without a pattern is looked up by the table's name and by what holds it: `acme/prod/orders`, `acme/prod`,
    `acme`. A scope with a pattern is compiled once, and only tables of the tenant that it names are matched against it.
    """

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self.holds = tuple(holds)
        self._named: dict[str, Hold] = {}
        self._patterns: dict[str | None, list[Hold]] = {}
        for hold in self.holds:
            self._named[hold.scope.rstrip("/")] = hold
            self._named[hold.scope] = hold  # also of a name that would be a pattern
            if _PATTERN.search(hold.scope):
                tenant = hold.scope.partition("/")[0]
                self._patterns.setdefault(None if _PATTERN.search(tenant) else tenant, []).append(hold)

    def __bool__(self) -> bool:
        return bool(self.holds)

    def covering(self, label: str) -> Hold | None:
        """A hold that names this table, or something that holds it; None if there is none."""
        scope = label
        while scope:
            if scope in self._named:
                return self._named[scope]
            scope = scope.rpartition("/")[0]
        for tenant in (None, label.partition("/")[0]):
            for hold in self._patterns.get(tenant, ()):
                if _compiled(hold.scope).match(label):
                    return hold
        return None


@lru_cache(maxsize=10_000)
def _compiled(scope: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(one)})" for one in (scope, f"{scope.rstrip('/')}/*")))


async def pause(app: App, hold: Hold) -> Hold:
    """Hold tables. Returns the hold that now applies: an existing one may last longer."""
    if hold.ends_at is not None and hold.ends_at <= app.clock.now():
        raise SettingsError(f"a hold that ends at {hold.ends_at:%Y-%m-%d %H:%M} UTC has no effect: give a later time")
    async with app.events.tightening("paused", hold.by, **hold_fields(hold)):
        _check_known(app, hold.scope)
        scopes = [one.scope for one in await app.state.holds()]
        tenant = hold.scope.partition("/")[0]
        of_tenant = sum(scope.partition("/")[0] == tenant for scope in scopes)
        if of_tenant >= MAX_HOLDS and hold.scope not in scopes:
            raise Refused(
                RefusalCode.TOO_MANY_HOLDS,
                f"{tenant} has {MAX_HOLDS} holds already; pause its dataset or the whole tenant",
            )
        await app.state.set_hold(hold)
    return next((one for one in await app.state.holds() if one.scope == hold.scope), hold)


async def stop(app: App, hold: Hold) -> list[str]:
    """Hold tables in an emergency, however many holds there are: every running sweep checks holds before each request,
    on any replica. Returns the ids of the runs that this reaches."""
    async with app.events.tightening("stopped", hold.by, **hold_fields(hold)):
        _check_known(app, hold.scope)
        await app.state.set_hold(hold)
        held = HoldIndex([hold])
        recent = await app.state.list_runs(limit=_RUNS_LOOKED_AT)
        return [run["run_id"] for run in recent if run["outcome"] is None and held.covering(run["table"])]


async def resume(app: App, scope: str, *, by: str, admin: bool) -> Hold | None:
    """Lift a hold and return it. None if there is none of that scope, Refused if it is an administrator's and the
    caller is not one."""
    hold = next((one for one in await app.state.holds() if one.scope == scope), None)
    if hold is None:
        return None
    if hold.by_admin and not admin:
        raise Refused(
            RefusalCode.HELD_BY_ADMIN,
            f"an administrator set the hold {scope}: ask somebody with a token for all tenants",
        )
    async with app.events.loosening("resumed", by, scope=scope, by_admin=admin):
        cleared = await app.state.clear_hold(scope, admin=admin)  # an administrator's may have come meanwhile
    return hold if cleared else None


def _check_known(app: App, scope: str) -> None:
    """A typo in a name must not look like a hold: raises UnknownTable."""
    known = [(tenant.id, dataset.id) for tenant, dataset in app.discovery.datasets()]
    bare = fnmatchcase(BARE_TENANT, scope.partition("/")[0])
    ghosts = [(tenant.id, GHOSTS) for tenant in app.settings.tenants]
    if not bare and not any(targets.may_match(scope, *names) for names in (*known, *ghosts)):
        hint = targets.suggestion(scope, [name for one in known for name in (one[0], "/".join(one))])
        raise UnknownTable(f"nothing to hold: {scope!r} names no configured tenant or dataset{hint and ': ' + hint}")


async def check_names_a_table(app: App, scope: str, known: Iterable[str] = ()) -> None:
    """Raise UnknownTable for a scope that looks like a table's label and names none: such a hold would have no effect.

    `known` are tables whose catalog need not be queried. A catalog that does not answer is no reason against a hold.
    """
    tenant, _, table = scope.partition("/")
    if "/" not in table or tenant == BARE_TENANT or any(targets.covers(scope, label) for label in known):
        return
    if is_ghost(scope) and app.settings.tenant(tenant) is not None:
        return  # in no catalog
    for owner, dataset in app.discovery.datasets():
        if targets.may_match(scope, owner.id, dataset.id) and await app.discovery.discover(owner, dataset, scope):
            return
    meant = await app.discovery.suggestion(scope)
    raise UnknownTable(f"no table matches {scope!r}: " + (meant or "`lakesweep tables` lists them"))


async def refuse_held(state: StateStore, label: str, *other_names: str, tenant: str | None = None) -> None:
    """Raise Refused while a hold covers the table, by whichever of its names; or, where a tenant is given, anything of
    that tenant but another ghost."""
    held = HoldIndex(await state.holds())
    for name in (label, *other_names):
        hold = held.covering(name)
        if hold is not None:
            raise Refused(RefusalCode.HELD, sentence(label, hold))
    for hold in held.holds:
        if tenant and fnmatchcase(tenant, hold.scope.partition("/")[0]) and not is_ghost(hold.scope):
            raise Refused(
                RefusalCode.HELD, f"{label} may be what is left of a held table: {sentence(hold.scope, hold)}"
            )


def sentence(label: str, hold: Hold) -> str:
    """A run's document is read by its tenant too, who must not see who holds several tenants, and why."""
    own = hold.scope.partition("/")[0] == label.partition("/")[0]
    by = f" by {hold.by}" if own else " by an administrator"
    why = f" ({hold.reason})" if own and hold.reason else ""
    since = f"{hold.since:%Y-%m-%d %H:%M} UTC"
    until = f" until {hold.ends_at:%Y-%m-%d %H:%M} UTC" if hold.ends_at else ""
    return f"{label} has been held since {since}{until}{by}{why}; `lakesweep resume '{hold.scope}'` lifts the hold"


async def hold_if_interrupted(state: StateStore, label: str, now: datetime) -> None:
    latest = await state.list_runs(table=label, limit=INTERRUPTIONS)
    if len(latest) < INTERRUPTIONS or not all(run["interrupted"] for run in latest):
        return
    what = (latest[0]["reason"] or "").removeprefix(INTERRUPTED).strip()
    reason = (
        f"the process died in each of the last {INTERRUPTIONS} runs, perhaps because it ran out of memory: "
        f"{what}; give it more memory or use Spark, then resume"
    )
    log.warning("table_held", table=label, reason=reason)
    await state.set_hold(Hold(scope=glob.escape(label), since=now, by=OURSELVES, reason=reason))


async def hold_if_lasting(state: StateStore, run: CleanupRun, now: datetime) -> None:
    if run.refusal is not None and refusal.consequences(run.refusal.code).holds_table:
        scope = glob.escape(run.table.label)
        await state.set_hold(Hold(scope=scope, since=now, by=OURSELVES, reason=run.refusal.reason))
        if run.refusal.code == refusal.RefusalCode.LOG_SET_BACK:
            await table_notes.accept_set_back(state, run.table.label)
