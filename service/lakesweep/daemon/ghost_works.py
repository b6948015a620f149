"""Ghosts as work for cycles: those that are found, to be planned, and those whose plan a person has approved."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.cleanup.approve import standing
from lakesweep.daemon.ghost_table import GhostTable
from lakesweep.daemon.ghosts import GhostHunt, place_key, recognised
from lakesweep.daemon.targets import Work, without_slash
from lakesweep.model.ghost import UNKNOWN_FORMAT, Ghost
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.model.run_document import Run
from lakesweep.model.table import GHOSTS, FormatName, TableRef, TenantId, is_ghost
from lakesweep.settings.cascade import ghost_grace

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class GhostWorks:
    """Of one tenant."""

    hunt: GhostHunt

    def work(self, ghost: Ghost) -> Work:
        """A ghost that was found."""
        known = None if ghost.format == UNKNOWN_FORMAT else FormatName(ghost.format)
        return self._work(Location.parse(ghost.location), known, ghost.name)

    async def approved(self) -> list[Work]:
        """Those whose plan may go now, whatever has become of them since."""
        hunt, found = self.hunt, []
        former = await hunt.former_names()
        planned = await hunt.app.state.last_planned([hunt.tenant.id])
        for label, run in sorted(planned.items()):
            if is_ghost(label) and run["location"] and await self._may_go(label, run):
                place = Location.parse(run["location"]).as_directory()
                was = former.get(place_key(place))
                name = was["table"] if was and not is_ghost(was["table"]) else None
                found.append(self._work(place, await self._format(place, run), name))
        return found

    async def _may_go(self, label: str, last: Run) -> bool:
        """Is there a valid approval that no run has carried out since?"""
        return (
            bool(await standing(self.hunt.app.state, label, self.hunt.app.clock.now()))
            and last["outcome"] is not Outcome.DONE
        )

    async def _format(self, place: Location, run: Run) -> FormatName | None:
        storage = self.hunt.storage
        seen = await recognised(storage, place, await storage.directories(place))
        return seen.format if seen else run["format"]

    def _work(self, place: Location, format: FormatName | None, former: str | None) -> Work:
        hunt = self.hunt
        name = without_slash(place).path.removeprefix(hunt.root.as_directory().path)
        # A ghost of which only data files are left is taken for an Iceberg table: its files lie in data/.
        ref = TableRef(tenant=TenantId(hunt.tenant.id), dataset=GHOSTS, name=name, format=format or FormatName.ICEBERG)
        grace = ghost_grace(hunt.app.settings, hunt.tenant.id)
        table = GhostTable(ref=ref, location=place.as_directory(), format=format, hunt=hunt, grace=grace)
        return Work(ref=ref, tenant_root=hunt.root, table=table, former=former)
