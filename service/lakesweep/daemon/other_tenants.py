"""Files that tables of other tenants use: a clone, or `add_files`, across the roots of two tenants.

Reading every table of every tenant for each plan would let one tenant slow down all others. So each tenant's plans note
in the state store where its tables use files outside its root, and only tenants that may use files of a table are
asked. A tenant that never noted anything is read once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from lakesweep.aio import working_for
from lakesweep.daemon.table_locations import TableLocations
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import TenantSettings

log = structlog.get_logger()

_READ_SECONDS = 10
"""So long a tenant that never noted anything may take to answer."""
_RECALLED_FOR = timedelta(minutes=5)
_NOBODY = TableRef(tenant=TenantId(""), dataset="", name="", format=next(iter(FormatName)))

Directories = dict[str, list[str]]
"""By table: where it uses files outside its tenant's root."""


class OtherTenants:
    """What the tables of all tenants use in the roots of others."""

    def __init__(self, settings: Settings, locations: TableLocations, clock: Clock) -> None:
        self._settings = settings
        self._locations = locations
        self._clock = clock
        self._noted: dict[str, tuple[datetime, Directories | None]] = {}

    async def shared_files(
        self, store: StateStore, tenant: TenantSettings, roots: Sequence[Location], own: TableRef
    ) -> dict[TableRef, list[str]]:
        """By table of another tenant: the files below the roots of `own` that it uses. Call it after
        `TableLocations.shared_files` for the own tenant, and notes what that found."""
        await self._note(store, tenant.id)
        found: dict[TableRef, list[str]] = {}
        for other in self._settings.tenants:
            if other.id != tenant.id and other.datasets:
                used = await self._used_by(store, other)
                if any(place.overlaps(root) for place in used for root in roots):
                    found |= await self._locations.shared_files(other, roots, own)
        return found

    async def _used_by(self, store: StateStore, other: TenantSettings) -> list[Location]:
        noted = await self._recall(store, other.id)
        if noted is None and self._locations.used_outside_root(other.id) is None:
            await self._read(store, other)
        used, _ = self._locations.used_outside_root(other.id) or ({}, False)
        places = {place for one in (noted or {}, used) for where in one.values() for place in where}
        return list(filter(None, map(Location.parse_or_none, places)))

    async def _read(self, store: StateStore, other: TenantSettings) -> None:
        """Once, whatever comes of it: tables too large to read must not end the runs of one tenant after the other."""
        await store.remember(_name(other.id), json.dumps({}))
        self._noted[other.id] = (self._clock.now(), {})
        try:
            with working_for(other.id):
                async with asyncio.timeout(_READ_SECONDS):
                    await self._locations.shared_files(other, (), _NOBODY)
        except Exception as exc:  # noqa: BLE001 - a bug that one tenant meets must not stop the others
            log.warning("borrowed_files_unknown", tenant=other.id, reason=str(exc) or type(exc).__name__)
        else:
            await self._note(store, other.id)

    async def _note(self, store: StateStore, tenant: str) -> None:
        found = self._locations.used_outside_root(tenant)
        if found is None:
            return
        used, complete = found
        noted = await self._recall(store, tenant)
        unread = {ref.label for ref in self._locations.unread(tenant)}
        used = {label: where for label, where in (noted or {}).items() if label in unread or not complete} | used
        if used != noted:
            await store.remember(_name(tenant), json.dumps(used))
            self._noted[tenant] = (self._clock.now(), used)

    async def _recall(self, store: StateStore, tenant: str) -> Directories | None:
        now, known = self._clock.now(), self._noted.get(tenant)
        if known is None or not known[0] <= now < known[0] + _RECALLED_FOR:
            found = await store.recall(_name(tenant))
            known = self._noted[tenant] = (now, json.loads(found) if found else None)
        return known[1]


def _name(tenant: str) -> str:
    return f"used-outside-root:{tenant}"
