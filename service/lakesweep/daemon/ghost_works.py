"""Ghosts as work for cycles: those that are found, to be planned, and those whose plan a person has approved."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from lakesweep.cleanup.approve import standing
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.daemon.ghost_table import RUNS_LOOKED_AT, GhostTable
from lakesweep.daemon.ghosts import GhostHunt, place_key, recognised
from lakesweep.daemon.targets import Work, without_slash
from lakesweep.formats.ghost_layout import GhostLayout
from lakesweep.model.errors import Refused
from lakesweep.model.ghost import UNKNOWN_FORMAT, Ghost
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.model.run_document import Run
from lakesweep.model.table import GHOSTS, FormatName, TableRef, TenantId, is_ghost
from lakesweep.ports.state import StateStore
from lakesweep.ports.storage import Storage
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


async def refuse_taken_place(storage: Storage, artifacts: Artifacts, state: StateStore, ghost: Run) -> None:
    """Refused if anything lies where a ghost was that is not a file of its own: a table that was made there since would
    find the ghost's metadata among its own. Names that no format writes were left there, and count for nothing."""
    place = Location.parse(ghost["location"] or "")
    sizes = await _own_sizes(artifacts, state, ghost)
    layout = GhostLayout(root=place.as_directory().raw, format=ghost["format"])
    async with aclosing(storage.list(place)) as pages:
        async for page in pages:
            for path, size in zip(page.column("path").to_pylist(), page.column("size_bytes").to_pylist(), strict=True):
                is_left = layout.classify(path).foreign and not layout.stranger([path])
                if sizes.get(path) != size and not is_left:
                    raise Refused(
                        "foreign_table",
                        f"{place} is in use by something else ({path} was not the ghost's): nothing is restored there",
                    )


async def _own_sizes(artifacts: Artifacts, state: StateStore, ghost: Run) -> dict[str, int]:
    """By path: what all plans that were begun named. One that was cut off has left the rest to the next."""
    sizes: dict[str, int] = {}
    seen: set[str] = set()
    for run in await state.list_runs(table=ghost["table"], limit=RUNS_LOOKED_AT):
        plan = await state.get_plan(run["run_id"])
        if plan is None or plan.digest in seen or not await state.journal(run["run_id"]):
            continue
        seen.add(plan.digest)
        at = 0
        while rows := await artifacts.page(plan.rows_path, at, _ROWS_AT_ONCE):
            sizes |= {row.path: row.size_bytes for row in rows}
            at += len(rows)
    return sizes
