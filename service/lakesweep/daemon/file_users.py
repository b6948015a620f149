"""Who uses files of a table, as the state store remembers it: tables of other tenants (a clone, or `add_files`, across
the roots of two tenants), and tables that cannot be read now.

Reading every table of every tenant for each plan would let one tenant slow down all others. So each tenant's plans note
in the state store where its tables use files outside its root, and only tenants that may use files of a table are
asked. A tenant that never noted anything is read once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from lakesweep.aio import working_for
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Refusal
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.table import TableState
from lakesweep.settings.tenants import TenantSettings

if TYPE_CHECKING:
    from lakesweep.daemon.app import App

log = structlog.get_logger()

_READ_SECONDS = 10
"""How long reading a tenant that never noted anything may take."""
_RECALLED_FOR = timedelta(minutes=5)
NOBODY = TableRef(tenant=TenantId(""), dataset="", name="", format=next(iter(FormatName)))

Directories = dict[str, list[str]]
"""By table: where it uses files outside its tenant's root."""


class OtherTenants:
    """What the tables of all tenants use in the roots of others."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._noted: dict[str, tuple[datetime, Directories | None]] = {}

    async def shared_files(
        self, tenant: TenantSettings, roots: Sequence[Location], own: TableRef
    ) -> dict[TableRef, list[str]]:
        """By table of another tenant: the files below the roots of `own` that it uses. Call it after
        `TableUses.shared_files` for the own tenant, and notes what that found."""
        await self.note(tenant.id)
        found: dict[TableRef, list[str]] = {}
        for other in self._app.settings.tenants:
            if other.id != tenant.id and other.datasets:
                used = await self._used_by(other)
                if any(place.overlaps(root) for place in used for root in roots):
                    found |= await self._app.neighbours.shared_files(other, roots, own)
        return found

    async def _used_by(self, other: TenantSettings) -> list[Location]:
        noted = await self._recall(other.id)
        if noted is None and self._app.neighbours.used_outside_root(other.id) is None:
            await self._read(other)
        used, _ = self._app.neighbours.used_outside_root(other.id) or ({}, False)
        places = {place for one in (noted or {}, used) for where in one.values() for place in where}
        return list(filter(None, map(Location.parse_or_none, places)))

    async def _read(self, other: TenantSettings) -> None:
        """Once, whatever comes of it: tables too large to read must not end the runs of one tenant after the other."""
        await self._app.state.remember(_name(other.id), json.dumps({}))
        self._noted[other.id] = (self._app.clock.now(), {})
        try:
            with working_for(other.id):
                async with asyncio.timeout(_READ_SECONDS):
                    await self._app.neighbours.shared_files(other, (), NOBODY)
        except Exception as exc:  # noqa: BLE001 - a bug that one tenant meets must not stop the others
            log.warning("borrowed_files_unknown", tenant=other.id, reason=str(exc) or type(exc).__name__)
        else:
            await self.note(other.id)

    async def note(self, tenant: str) -> None:
        """Keep what was last read of where a tenant's tables use files outside its root."""
        found = self._app.neighbours.used_outside_root(tenant)
        if found is None:
            return
        used, complete = found
        noted = await self._recall(tenant)
        unread = {ref.label for ref in self._app.neighbours.unread(tenant)}
        used = {label: where for label, where in (noted or {}).items() if label in unread or not complete} | used
        if used != noted:
            await self._app.state.remember(_name(tenant), json.dumps(used))
            self._noted[tenant] = (self._app.clock.now(), used)

    async def _recall(self, tenant: str) -> Directories | None:
        now, known = self._app.clock.now(), self._noted.get(tenant)
        if known is None or not known[0] <= now < known[0] + _RECALLED_FOR:
            found = await self._app.state.recall(_name(tenant))
            known = self._noted[tenant] = (now, json.loads(found) if found else None)
        return known[1]


def _name(tenant: str) -> str:
    return f"used-outside-root:{tenant}"


async def check_known(app: App, tenant: TenantSettings, table: TableState) -> Refusal | None:
    """Refused if a table that used files of this one, or shared its place, cannot be read now and was not read by this
    process before. Unlike all else that is known of tables, this outlives the process: a clone that is damaged, or
    whose catalog is away, still needs the files of its source. Call it after `TableUses.shared_files`."""
    name = f"borrowers:{table.ref.label}"  # state stores hold this key already: never rename it
    noted: dict[str, str] = json.loads(await app.state.recall(name) or "{}")
    found = app.neighbours.users(tenant, table.roots, table.ref)
    doubts = {label: app.neighbours.doubt(app.settings.tenants, label) for label in (*noted, *found)}
    # Of one that is read in part it is not known whether that is all.
    certain = {label: how for label, how in found.items() if doubts[label] is None}
    unknown = {label: how for label, how in noted.items() if doubts[label] is not None}
    if certain | unknown != noted:
        await app.state.remember(name, json.dumps(certain | unknown))
    for label, how in sorted(unknown.items()):
        return Refusal(
            code=RefusalCode.NEIGHBOURS_UNKNOWN,
            reason=f"{label} {how} when it was last read, and cannot be read now, so it is not known which files "
            f"of this table it needs: {doubts[label]}. Repair it, or drop it if nobody needs it",
        )
    return None
