"""What one table's cycle works with: its policy, its ports and its context. Reads settings; starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.daemon import file_users, holds
from lakesweep.daemon.clock import ClockWatch
from lakesweep.daemon.lease import HeldLease
from lakesweep.daemon.table_locations import other_roots, without_itself
from lakesweep.daemon.targets import Work
from lakesweep.engines.registry import RUNS_LOOKED_AT
from lakesweep.model.access import Trigger
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy, Deletion
from lakesweep.model.run import EngineChoice, Refusal
from lakesweep.model.table import is_ghost
from lakesweep.model.trash import RunTrash
from lakesweep.ports.deleter import Deleter
from lakesweep.ports.engine import Engine
from lakesweep.ports.surroundings import DirectoryIdentity, Neighbours
from lakesweep.ports.table import TableState
from lakesweep.settings.cascade import ghost_policy, policy_for, trash_for
from lakesweep.settings.tenants import TenantSettings
from lakesweep.storage.local.same_place import identify

if TYPE_CHECKING:
    from lakesweep.daemon.app import App


async def prepare(
    app: App, run_id: str, work: Work, held: HeldLease, trigger: Trigger | None, *, execute: bool | None
) -> tuple[Ports, RunContext]:
    """Raises why the table cannot be opened, or that it is held."""
    table = work.opened()
    rules = policy(app, work, execute=execute)
    if not rules.dry_run:
        await holds.refuse_held(app.state, *work.names, tenant=work.is_held_with)
    trash = None
    if rules.deletion is Deletion.TRASH:
        place = trash_for(app.settings, work.tenant_root, work.tenant, *work.rules_of)
        trash = RunTrash(place=place, root=work.tenant_root, run_id=run_id)
    ports = Ports(
        table=table,
        storage=app.adapters.storage(work.tenant, work.read_root),
        choose_engine=partial(_choose_engine, app, work, run_id),
        open_deleter=partial(_open_deleter, app, work, rules, trash),
        state=app.state,
        audit=app.trails.open(run_id, work.ref, held.token, trigger),
        clock=app.clock,
        artifacts=app.artifacts,
        surroundings=TableSurroundings(app=app, work=work),
        rules=app.adapters.rules(work.tenant),
    )
    context = RunContext(
        run_id=run_id,
        tenant_root=work.tenant_root,
        policy=rules,
        execute=not rules.dry_run,
        fence=held,
        rows_path=str(app.artifacts.file("plans", f"{run_id}.parquet")),
        inventory=_inventory_of(app, work),
        listing_slots=app.listings.of(work.tenant),
        deletion_slots=app.deletions.of(work.tenant),
        trash=trash,
        prices=app.settings.prices.of_requests(local=work.tenant_root.is_local),
    )
    return ports, context


def policy(app: App, work: Work, *, execute: bool | None) -> CleanupPolicy:
    rules = policy_for(app.settings, work.tenant, *work.rules_of, execute=execute, override=app.override)
    place = work.table.place() if work.table and is_ghost(work.ref.label) else None
    known = work.former is not None
    return ghost_policy(app.settings, rules, work.tenant, place, known=known) if place else rules


def _inventory_of(app: App, work: Work) -> Location | None:
    tenant = None if work.bare else app.settings.tenant(work.tenant)
    dataset = tenant.dataset(work.ref.dataset) if tenant else None
    return Location.parse(dataset.inventory) if dataset and dataset.inventory else None


async def _choose_engine(app: App, work: Work, run_id: str, state: TableState) -> tuple[Engine, EngineChoice]:
    """By the runs before this one, which show how large the table is."""
    runs = await app.state.list_runs(table=work.ref.label, before=run_id, limit=RUNS_LOOKED_AT)
    return app.adapters.choose_engine(work.tenant, state, runs, work.read_root)


def _open_deleter(app: App, work: Work, policy: CleanupPolicy, trash: RunTrash | None, state: TableState) -> Deleter:
    return app.adapters.deleter(
        work.tenant,
        work.tenant_root,
        state,
        policy.max_concurrent_deletions,
        lambda files: app.metrics.count_batch(work.ref, files),
        trash=trash,
    )


@dataclass(frozen=True, kw_only=True)
class TableSurroundings:
    """The Surroundings port for one table."""

    app: App
    work: Work

    @property
    def _tenant(self) -> TenantSettings | None:
        return self.app.settings.tenant(self.work.tenant)

    async def neighbours(self) -> Neighbours:
        app, work, tenant = self.app, self.work, self._tenant
        places = await app.neighbours.of(tenant) if tenant else {}
        if work.bare:
            places = without_itself(places, work.ref)
        others = other_roots(app.settings.tenants, tenant.id) if tenant else {}
        return Neighbours(places={**places, **others}, problem=app.neighbours.problem(work.tenant, work.ref.dataset))

    async def shared_files(self, state: TableState, *, own_later: bool = False) -> Mapping[str, Sequence[str]]:
        tenant = self._tenant
        if tenant is None:
            return {}
        # Other tenants, and datasets of other catalogs, may have to rely on what is known of this table: so there it is
        # read before anything can fail.
        own_later = own_later and len(self.app.settings.tenants) == 1 and len(tenant.datasets) == 1
        shared = await self.app.neighbours.shared_files(tenant, state.roots, self.work.ref, own_later=own_later)
        if not own_later:
            shared |= await self.app.other_tenants.shared_files(tenant, state.roots, self.work.ref)
        return {other.label: paths for other, paths in shared.items()}

    async def read_own(self) -> None:
        if tenant := self._tenant:
            await self.app.neighbours.read_own(tenant, self.work.ref)
            await self.app.other_tenants.note(tenant.id)

    async def check_file_users(self, state: TableState) -> Refusal | None:
        return await file_users.check_known(self.app, self._tenant, state) if self._tenant else None

    async def identify(self, places: Iterable[Location]) -> Mapping[Location, DirectoryIdentity]:
        return await identify(places)

    async def check_clock(self, allowed: timedelta) -> Refusal | None:
        return await ClockWatch(self.app.clock, self.app.state).check(allowed)

    async def check_not_held(self) -> None:
        await holds.refuse_held(self.app.state, *self.work.names, tenant=self.work.is_held_with)
