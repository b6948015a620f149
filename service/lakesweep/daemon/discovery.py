"""Which tables there are: configured ones, discovered anew from catalogs and warehouses each time, or a location."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakesweep.daemon import targets
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.targets import Work
from lakesweep.model.errors import LakesweepError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings


@dataclass(frozen=True, slots=True)
class Discovery:
    """The tables of one set of settings."""

    settings: Settings
    adapters: Adapters

    async def resolve(
        self, target: str | None, *, format: FormatName | None = None, root: str | None = None
    ) -> list[Work]:
        """The tables a target names. A dataset that cannot be read becomes a Work with its problem."""
        location = targets.as_location(target) if target else None
        if location:
            return [await self._bare(location, format, targets.root_location(root) if root else None)]
        pattern = target or "*"
        works: list[Work] = []
        for tenant, dataset in self.datasets():
            if targets.may_match(pattern, tenant.id, dataset.id):
                works += await self.discover(tenant, dataset, pattern)
        if not works:
            known = ", ".join(sorted(f"{tenant.id}/{dataset.id}" for tenant, dataset in self.datasets()))
            raise UnknownTable(
                f"no configured table matches {pattern!r}; "
                + (
                    f"configured datasets: {known}"
                    if known
                    else "no dataset is configured: give --config FILE or a location"
                )
            )
        return works

    async def discover(self, tenant: TenantSettings, dataset: DatasetSettings, pattern: str = "*") -> list[Work]:
        """The tables of one dataset as its catalog or warehouse shows them now, or one Work with its problem."""
        root = Location.parse(tenant.root)
        try:
            source = self.adapters.format(tenant, dataset)
            refs = targets.matching(pattern, await source.tables())
            return [Work(ref=ref, tenant_root=root, table=await source.open(ref)) for ref in sorted(refs)]
        except LakesweepError as exc:
            return [self.unreadable(tenant, dataset, exc)]

    def unreadable(self, tenant: TenantSettings, dataset: DatasetSettings, why: LakesweepError) -> Work:
        """Stands for all tables of a dataset that does not tell them."""
        whole = TableRef(tenant=TenantId(tenant.id), dataset=dataset.id, name="*", format=dataset.format)
        return Work(ref=whole, tenant_root=Location.parse(tenant.root), problem=why)

    async def reopened(self, work: Work) -> Work:
        """A fresh handle on the same table: one that is used for months would remember all it ever read."""
        tenant = self.settings.tenant(work.ref.tenant)
        dataset = tenant.dataset(work.ref.dataset) if tenant else None
        if work.table is None or tenant is None or dataset is None:
            return work
        return replace(work, table=await self.adapters.format(tenant, dataset).open(work.ref))

    def datasets(self) -> list[tuple[TenantSettings, DatasetSettings]]:
        """Everything that tables are discovered from."""
        return [(tenant, dataset) for tenant in self.settings.tenants for dataset in tenant.datasets]

    async def _bare(self, location: Location, format: FormatName | None, root: Location | None) -> Work:
        """A location inside a configured tenant's root is that tenant's: its S3, its root and its dry_run hold."""
        owner = next((t for t in self.settings.tenants if Location.parse(t.root).overlaps(location)), None)
        if root is None:
            root = Location.parse(owner.root) if owner else location
        table = await self.adapters.bare_table(location, format, root, owner.id if owner else "")
        return Work(ref=table.ref, tenant_root=root, table=table, bare=True, bare_tenant=owner.id if owner else "")
