"""Pause, stop and resume, as people request them: with a record of each, and within what each person may lift."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakesweep.daemon import holds, targets
from lakesweep.daemon.events import hold_fields
from lakesweep.model.errors import Refused, SettingsError, UnknownTable
from lakesweep.model.table import BARE_TENANT, is_ghost
from lakesweep.ports.state import Hold

if TYPE_CHECKING:
    from lakesweep.daemon.app import App


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


async def pause(app: App, hold: Hold) -> Hold:
    """Hold tables. Returns the hold that now applies: an existing one may last longer."""
    if hold.ends_at is not None and hold.ends_at <= app.clock.now():
        raise SettingsError(f"a pause that ends at {hold.ends_at:%Y-%m-%d %H:%M} UTC has no effect: give a later time")
    async with app.events.tightening("paused", hold.by, **hold_fields(hold)):
        await holds.pause(app.state, app.settings, hold)
    return next((one for one in await app.state.holds() if one.scope == hold.scope), hold)


async def stop(app: App, hold: Hold) -> list[str]:
    """End what is under way and hold it. Returns the ids of the runs that this reaches."""
    async with app.events.tightening("stopped", hold.by, **hold_fields(hold)):
        return await holds.stop(app.state, app.settings, hold)


async def resume(app: App, scope: str, *, by: str, admin: bool) -> Hold | None:
    """Lift a hold and return it. None if there is none of that scope, Refused if it is an administrator's and the
    caller is not one."""
    hold = next((one for one in await app.state.holds() if one.scope == scope), None)
    if hold is None:
        return None
    if hold.by_admin and not admin:
        raise Refused("held_by_admin", f"an administrator holds {scope}: ask somebody with a token for all tenants")
    async with app.events.loosening("resumed", by, scope=scope, by_admin=admin):
        cleared = await app.state.clear_hold(scope, admin=admin)  # an administrator's may have come meanwhile
    return hold if cleared else None
