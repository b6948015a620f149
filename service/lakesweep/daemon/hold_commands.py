"""Pause, stop and resume, as people ask for them: with a record of each, and within what each person may lift."""

from __future__ import annotations

from lakesweep.daemon import holds
from lakesweep.daemon.app import App
from lakesweep.daemon.events import hold_fields
from lakesweep.model.errors import Refused
from lakesweep.ports.state import Hold


async def pause(app: App, hold: Hold) -> None:
    """Hold tables back."""
    async with app.events.tightening("paused", hold.by, **hold_fields(hold)):
        await holds.pause(app.state, app.settings, hold)


async def stop(app: App, hold: Hold) -> list[str]:
    """End what is under way and hold it back. The runs that this reaches, by id."""
    async with app.events.tightening("stopped", hold.by, **hold_fields(hold)):
        return await holds.stop(app.state, app.settings, hold)


async def resume(app: App, scope: str, *, by: str, admin: bool) -> bool:
    """Lift a hold. False if there is none of that scope; Refused if it is an administrator's and this is not one."""
    hold = next((one for one in await app.state.holds() if one.scope == scope), None)
    if hold is None:
        return False
    if hold.by_admin and not admin:
        raise Refused("held_by_admin", f"an administrator holds {scope}: ask somebody with a token for all tenants")
    async with app.events.loosening("resumed", by, scope=scope, by_admin=admin):
        return await app.state.clear_hold(scope, admin=admin)  # an administrator's may have come meanwhile
