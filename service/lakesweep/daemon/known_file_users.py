"""Which tables used files of a table, or shared its place, when they could last be read. Unlike all else that is known
of them, this outlives the process: a clone that is damaged, or whose catalog is away, still needs the files of its
source.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from lakesweep.daemon.table_locations import TableLocations
from lakesweep.model.run import Refusal
from lakesweep.ports.state import StateStore
from lakesweep.ports.table import TableState
from lakesweep.settings.tenants import TenantSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFileUsers:
    """What the state store knows of the tables that use files of one table."""

    state: StateStore
    locations: TableLocations
    tenants: Sequence[TenantSettings]

    async def check(self, tenant: TenantSettings, table: TableState) -> Refusal | None:
        """Refused if one of them cannot be read now and was not read by this process before. Call it after
        `TableLocations.shared_files`."""
        name = f"borrowers:{table.ref.label}"  # state stores hold this key already: never rename it
        noted: dict[str, str] = json.loads(await self.state.recall(name) or "{}")
        found = self.locations.users(tenant, table.roots, table.ref)
        doubts = {label: self.locations.doubt(self.tenants, label) for label in (*noted, *found)}
        # Of one that is read in part it is not known whether that is all.
        certain = {label: how for label, how in found.items() if doubts[label] is None}
        unknown = {label: how for label, how in noted.items() if doubts[label] is not None}
        if certain | unknown != noted:
            await self.state.remember(name, json.dumps(certain | unknown))
        for label, how in sorted(unknown.items()):
            return Refusal(
                code="neighbours_unknown",
                reason=f"{label} {how} when it was last read, and cannot be read now, so it is not known which files "
                f"of this table it needs: {doubts[label]}. Repair it, or drop it if nobody needs it",
            )
        return None
