"""The ports that one table's cycle gets from the service: its engines, its power to delete, and its surroundings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lakesweep.daemon import holds
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import ClockWatch
from lakesweep.daemon.table_locations import TableLocations, other_roots, without_itself
from lakesweep.daemon.targets import Work
from lakesweep.model import run_document
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import EngineChoice, Refusal
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
    runs: Sequence[run_document.Run]
    """Its last runs, which tell how large it is."""

    def choose(self, state: TableState) -> tuple[Engine, EngineChoice]:
        """By setting, or by the table's size."""
        return self.adapters.choose_engine(self.work.tenant, state, self.runs, self.work.read_root)


@dataclass(frozen=True, kw_only=True)
class TableDeleters:
    """The Deleters port for one table: inside its tenant's root and its own roots only."""

    adapters: Adapters
    work: Work
    policy: CleanupPolicy
    metrics: Metrics

    def open(self, state: TableState) -> Deleter:
        """A gated deleter."""
        return self.adapters.deleter(
            self.work.tenant,
            self.work.tenant_root,
            state,
            self.policy.max_concurrent_deletions,
            lambda files: self.metrics.count_batch(self.work.ref, files),
        )


@dataclass(frozen=True, kw_only=True)
class TableSurroundings:
    """The Surroundings port for one table."""

    settings: Settings
    locations: TableLocations
    state: StateStore
    clock: Clock
    work: Work

    async def neighbours(self) -> Neighbours:
        """The tenant's tables, and the roots of other tenants."""
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
        """Those that other tables of the tenant use."""
        tenant = self.settings.tenant(self.work.tenant)
        if tenant is None:
            return {}
        lent = await self.locations.lent(tenant, state.roots, self.work.ref)
        return {other.label: paths for other, paths in lent.items()}

    async def identify(self, places: Iterable[Location]) -> Mapping[Location, DirectoryIdentity]:
        """By device, inode and mounts."""
        return await identify(places)

    async def check_clock(self, allowed: timedelta) -> Refusal | None:
        """Compares it with everything else that tells the time."""
        return await ClockWatch(self.clock, self.state).check(allowed)

    async def check_not_held(self) -> None:
        """Asks the state store."""
        await holds.refuse_held(self.state, *self.work.names)
