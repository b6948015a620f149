"""What one table's cycle works with: its policy, its ports and its context. Reads settings; starts nothing."""

from __future__ import annotations

from dataclasses import dataclass

from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.daemon import holds
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.audit_factory import AuditFactory
from lakesweep.daemon.lease import HeldLease
from lakesweep.daemon.limits import Limits
from lakesweep.daemon.other_tenants import OtherTenants
from lakesweep.daemon.run_ports import TableDeleters, TableEngines, TableSurroundings
from lakesweep.daemon.table_locations import TableLocations
from lakesweep.daemon.targets import Work
from lakesweep.model.access import Trigger
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy, Deletion
from lakesweep.model.table import is_ghost
from lakesweep.model.trash import RunTrash
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore
from lakesweep.settings.cascade import ghost_policy, policy_for, trash_for
from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.schema import Settings
from lakesweep.telemetry.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class CycleSetup:
    """Prepares cycles under one set of settings."""

    settings: Settings
    override: CleanupOverride
    """Rules for this one call, over all that is configured."""
    adapters: Adapters
    locations: TableLocations
    other_tenants: OtherTenants
    state: StateStore
    trails: AuditFactory
    artifacts: Artifacts
    limits: Limits
    metrics: Metrics
    clock: Clock

    async def prepare(
        self, run_id: str, work: Work, held: HeldLease, trigger: Trigger | None, *, execute: bool | None
    ) -> tuple[Ports, RunContext]:
        """Raises why the table cannot be opened, or that it is held."""
        table = work.opened()
        policy = self.policy(work, execute=execute)
        if not policy.dry_run:
            await holds.refuse_held(self.state, *work.names, tenant=work.is_held_with)
        trash = self._trash(work, run_id) if policy.deletion is Deletion.TRASH else None
        ports = Ports(
            table=table,
            storage=self.adapters.storage(work.tenant, work.read_root),
            engines=TableEngines(adapters=self.adapters, work=work, state=self.state, run_id=run_id),
            deleters=TableDeleters(adapters=self.adapters, work=work, policy=policy, metrics=self.metrics, trash=trash),
            state=self.state,
            audit=self.trails.open(run_id, work.ref, held.token, trigger),
            clock=self.clock,
            artifacts=self.artifacts,
            surroundings=self.surroundings(work),
            rules=self.adapters.rules(work.tenant),
        )
        context = RunContext(
            run_id=run_id,
            tenant_root=work.tenant_root,
            policy=policy,
            execute=not policy.dry_run,
            fence=held,
            fencing_token=held.token,
            rows_path=str(self.artifacts.file("plans", f"{run_id}.parquet")),
            inventory=self._inventory_of(work),
            listing_slots=self.limits.listings.of(work.tenant),
            deletion_slots=self.limits.deletions.of(work.tenant),
            trash=trash,
            prices=self.settings.prices.of_requests(local=work.tenant_root.is_local),
        )
        return ports, context

    def policy(self, work: Work, *, execute: bool | None) -> CleanupPolicy:
        """The rules that a run of the table follows."""
        names = (work.tenant, *work.rules_of)
        policy = policy_for(self.settings, *names, execute=execute, override=self.override)
        place = work.table.place() if work.table and is_ghost(work.ref.label) else None
        known = work.former is not None
        return ghost_policy(self.settings, policy, work.tenant, place, known=known) if place else policy

    def surroundings(self, work: Work) -> TableSurroundings:
        """Who else has files near the table."""
        return TableSurroundings(
            settings=self.settings,
            locations=self.locations,
            other_tenants=self.other_tenants,
            state=self.state,
            clock=self.clock,
            work=work,
        )

    def _trash(self, work: Work, run_id: str) -> RunTrash:
        root = work.tenant_root
        place = trash_for(self.settings, root, work.tenant, *work.rules_of)
        return RunTrash(place=place, root=root, run_id=run_id)

    def _inventory_of(self, work: Work) -> Location | None:
        """The inventory of a configured table's dataset, if it has one."""
        tenant = None if work.bare else self.settings.tenant(work.tenant)
        dataset = tenant.dataset(work.ref.dataset) if tenant else None
        return Location.parse(dataset.inventory) if dataset and dataset.inventory else None
