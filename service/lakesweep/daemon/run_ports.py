"""The ports that one table's cycle gets from the service: its engines, its power to delete, and its surroundings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lakesweep.daemon import holds
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import ClockWatch
from lakesweep.daemon.known_file_users import KnownFileUsers
from lakesweep.daemon.other_tenants import OtherTenants
from lakesweep.daemon.table_locations import TableLocations, other_roots, without_itself
from lakesweep.daemon.targets import Work
from lakesweep.engines.registry import RUNS_LOOKED_AT
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import EngineChoice, Refusal
from lakesweep.model.trash import RunTrash
from lakesweep.ports.clock import Clock
from lakesweep.ports.deleter import Deleter
from lakesweep.ports.engine import Engine
from lakesweep.ports.state import StateStore
from lakesweep.ports.surroundings import DirectoryIdentity, Neighbours
from lakesweep.ports.table import TableState
from lakesweep.settings.schema import Settings
from lakesweep.storage.local.same_place import identify
from lakesweep.telemetry.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class TableEngines:
    """The Engines port for one table."""

    adapters: Adapters
    work: Work
    state: StateStore
    run_id: str

    async def choose(self, state: TableState) -> tuple[Engine, EngineChoice]:
        """By the runs before this one, which show how large the table is."""
        runs = await self.state.list_runs(table=self.work.ref.label, before=self.run_id, limit=RUNS_LOOKED_AT)
        return self.adapters.choose_engine(self.work.tenant, state, runs, self.work.read_root)


@dataclass(frozen=True, kw_only=True)
class TableDeleters:
    """The Deleters port for one table: inside its tenant's root and its own roots only."""

    adapters: Adapters
    work: Work
    policy: CleanupPolicy
    metrics: Metrics
    trash: RunTrash | None = None

    def open(self, state: TableState) -> Deleter:
        return self.adapters.deleter(
            self.work.tenant,
            self.work.tenant_root,
            state,
            self.policy.max_concurrent_deletions,
            lambda files: self.metrics.count_batch(self.work.ref, files),
            trash=self.trash,
        )


@dataclass(frozen=True, kw_only=True)
class TableSurroundings:
    """The Surroundings port for one table."""

    settings: Settings
    locations: TableLocations
    other_tenants: OtherTenants
    state: StateStore
    clock: Clock
    work: Work

    async def neighbours(self) -> Neighbours:
        work, tenant = self.work, self.settings.tenant(self.work.tenant)
        if tenant is None:
            return Neighbours(problem=self.locations.problem(work.tenant, work.ref.dataset))
        places = await self.locations.of(tenant)
        if work.bare:
            places = without_itself(places, work.ref)
        return Neighbours(
            places={**places, **other_roots(self.settings.tenants, tenant.id)},
            problem=self.locations.problem(work.tenant, work.ref.dataset),
        )

    async def shared_files(self, state: TableState) -> Mapping[str, Sequence[str]]:
        tenant = self.settings.tenant(self.work.tenant)
        if tenant is None:
            return {}
        shared = await self.locations.shared_files(tenant, state.roots, self.work.ref)
        shared |= await self.other_tenants.shared_files(self.state, tenant, state.roots, self.work.ref)
        return {other.label: paths for other, paths in shared.items()}

    async def check_file_users(self, state: TableState) -> Refusal | None:
        tenant = self.settings.tenant(self.work.tenant)
        if tenant is None:
            return None
        known = KnownFileUsers(state=self.state, locations=self.locations, tenants=self.settings.tenants)
        return await known.check(tenant, state)

    async def identify(self, places: Iterable[Location]) -> Mapping[Location, DirectoryIdentity]:
        return await identify(places)

    async def check_clock(self, allowed: timedelta) -> Refusal | None:
        return await ClockWatch(self.clock, self.state).check(allowed)

    async def check_not_held(self) -> None:
        await holds.refuse_held(self.state, *self.work.names, tenant=self.work.is_held_with)
