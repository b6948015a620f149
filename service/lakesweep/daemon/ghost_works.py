"""Ghosts as work for cycles: those that are found, to be planned, and those whose plan a person has approved."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from lakesweep.cleanup.approve import standing
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.ghost_table import GhostTable
from lakesweep.daemon.ghosts import GhostHunt, place_key, recognised
from lakesweep.daemon.targets import Work, without_slash
from lakesweep.formats.ghost_layout import GhostLayout
from lakesweep.model.errors import Refused
from lakesweep.model.ghost import UNKNOWN_FORMAT, Ghost
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.model.run_document import Run
from lakesweep.model.table import GHOSTS, FormatName, TableRef, TenantId, is_ghost
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore
from lakesweep.ports.storage import Storage
from lakesweep.settings.cascade import ghost_grace

_RUNS_LOOKED_AT = 50
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class GhostWorks:
    """Of one tenant."""

    hunt: GhostHunt
    adapters: Adapters
    clock: Clock

    def work(self, ghost: Ghost) -> Work:
        """A ghost that was found."""
        known = None if ghost.format == UNKNOWN_FORMAT else FormatName(ghost.format)
        return self._work(Location.parse(ghost.location), known, ghost.name)

    async def approved(self) -> list[Work]:
        """Those whose plan may go now, whatever has become of them since."""
        hunt, found = self.hunt, []
        former = await hunt.former_names()
        planned = await hunt.state.last_planned([hunt.tenant.id])
        for label, run in sorted(planned.items()):
            if is_ghost(label) and run["location"] and await self._may_go(label, run):
                place = Location.parse(run["location"]).as_directory()
                was = former.get(place_key(place))
                name = was["table"] if was and not is_ghost(was["table"]) else None
                found.append(self._work(place, await self._format(place, run), name))
        return found

    async def _may_go(self, label: str, last: Run) -> bool:
        """Is there a valid approval that no run has carried out since?"""
        return bool(await standing(self.hunt.state, label, self.clock.now())) and last["outcome"] is not Outcome.DONE

    async def _format(self, place: Location, run: Run) -> FormatName | None:
        storage = self.adapters.storage(self.hunt.tenant.id)
        seen = await recognised(storage, place, await storage.directories(place))
        return seen.format if seen else run["format"]

    def _work(self, place: Location, format: FormatName | None, former: str | None) -> Work:
        hunt = self.hunt
        root = Location.parse(hunt.tenant.root)
        name = without_slash(place).path.removeprefix(root.as_directory().path)
        # A ghost of which only data files are left is taken for an Iceberg table: its files lie in data/.
        ref = TableRef(tenant=TenantId(hunt.tenant.id), dataset=GHOSTS, name=name, format=format or FormatName.ICEBERG)

        async def was_begun() -> bool:
            state = hunt.state
            for run in await state.list_runs(table=ref.label, limit=_RUNS_LOOKED_AT):
                if await state.journal(run["run_id"]):
                    # After one that took all of it, or brought it back, what is there is somebody's again.
                    return run["outcome"] is not Outcome.DONE and run["restored"] is None
            return False

        table = GhostTable(
            ref=ref,
            location=place.as_directory(),
            format=format,
            hunt=hunt,
            storage=self.adapters.storage(hunt.tenant.id),
            clock=self.clock,
            grace=ghost_grace(hunt.settings, hunt.tenant.id),
            was_begun=was_begun,
        )
        return Work(ref=ref, tenant_root=root, table=table, former=former)


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
    for run in await state.list_runs(table=ghost["table"], limit=_RUNS_LOOKED_AT):
        plan = await state.get_plan(run["run_id"])
        if plan is None or plan.digest in seen or not await state.journal(run["run_id"]):
            continue
        seen.add(plan.digest)
        at = 0
        while rows := await artifacts.page(plan.rows_path, at, _ROWS_AT_ONCE):
            sizes |= {row.path: row.size_bytes for row in rows}
            at += len(rows)
    return sizes
