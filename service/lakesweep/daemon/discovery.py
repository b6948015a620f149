"""Which tables there are: configured ones, discovered from catalogs and warehouses each time, or a location."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lakesweep.daemon import run_results, targets
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.table_locations import TableLocations, is_of_no_dataset
from lakesweep.daemon.targets import Work
from lakesweep.model.errors import CatalogUnavailable, LakesweepError, SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings


def whole_dataset(tenant: TenantSettings, dataset: DatasetSettings) -> TableRef:
    """Stands for all of its tables."""
    return TableRef(tenant=TenantId(tenant.id), dataset=dataset.id, name="*", format=dataset.format)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The tables of one set of settings."""

    settings: Settings
    adapters: Adapters
    neighbours: TableLocations

    async def resolve(
        self, target: str | None, *, format: FormatName | None = None, root: str | None = None
    ) -> list[Work]:
        """The tables a target names, or all that are configured where it is None.

        A dataset that cannot be read becomes a Work with its problem. An empty target is a variable that somebody
        forgot to set: it names nothing, and certainly not every table.
        """
        location = None if target is None else targets.as_location(target)
        if location:
            location = targets.without_slash(location)
            return [await self._bare(location, format, None if root is None else targets.root_location(root))]
        if format is not None or root is not None:
            raise SettingsError("--format and --root apply only to bare locations")
        pattern = "*" if target is None else target
        works: list[Work] = []
        for tenant, dataset in self.datasets():
            if targets.may_match(pattern, tenant.id, dataset.id):
                works += await self.discover(tenant, dataset, pattern)
        if not works:
            raise UnknownTable(await self._no_match(target))
        return works

    def empty(self, names: Sequence[str | None], found: Iterable[TableRef]) -> dict[str, str]:
        """Datasets that some name covers as a whole and that have none of the tables found: where they were looked
        for. Such a dataset may be new, or its address may be wrong."""
        seen = {(ref.tenant, ref.dataset) for ref in found}
        names = [name for name in names if name is None or targets.as_location(name) is None]
        return {
            f"{tenant.id}/{dataset.id}": next(iter(dataset.places.values()), "its catalog")
            for tenant, dataset in self.datasets()
            if (tenant.id, dataset.id) not in seen
            and any(name is None or targets.covers(name, whole_dataset(tenant, dataset).label) for name in names)
        }

    async def suggestion(self, target: str) -> str:
        """`did you mean …?` for a target that names nothing, from the names of tenants, datasets and tables."""
        places = {f"{tenant.id}/{dataset.id}": (tenant, dataset) for tenant, dataset in self.datasets()}
        parts = target.split("/", 2)
        if len(parts) < 3:
            return targets.suggestion(target, {*places, *(tenant.id for tenant, _ in self.datasets())})
        scope, name = "/".join(parts[:2]), parts[2]
        if scope not in places:  # a slip in the tenant or dataset: no catalog is asked for it
            return targets.suggestion(target, (f"{place}/{name}" for place in places))
        try:
            refs = await self.adapters.format(*places[scope]).tables()
        except Exception:  # noqa: BLE001 - only a hint would come of it
            return ""
        return targets.suggestion(target, (ref.label for ref in refs))

    async def _no_match(self, target: str | None) -> str:
        if target == "":
            return "an empty target matches no table; use '*' for every configured table"
        if target and (empty := self.empty([target], [])):
            where = ", ".join(f"{name} ({place})" for name, place in sorted(empty.items()))
            return f"there are no tables in {target!r}: looked in {where}"
        begins = f"no configured table matches {target!r}, and there is no such directory: " if target else ""
        if target and (meant := await self.suggestion(target)):
            begins += f"{meant} "
        if not self.datasets():
            return f"{begins}no dataset is configured; name a settings file with --config or LAKESWEEP_CONFIG"
        pattern = target or "*"
        near = [names for names in self.datasets() if targets.may_match(pattern, *(part.id for part in names))]
        where = ", ".join(sorted(f"{tenant.id}/{dataset.id}" for tenant, dataset in near or self.datasets()))
        if not near:
            return f"{begins}configured datasets: {where}"
        return (
            f"{begins}looked in {where}; `lakesweep tables` lists what is there" if target else f"no tables in {where}"
        )

    async def discover(self, tenant: TenantSettings, dataset: DatasetSettings, pattern: str = "*") -> list[Work]:
        """The tables of one dataset as its catalog or warehouse shows them now, or one Work with its problem."""
        root = Location.parse(tenant.root)
        try:
            await refuse_missing_directories(tenant, dataset)
            source = self.adapters.format(tenant, dataset)
            refs = [ref for ref in await source.tables() if targets.covers(pattern, ref.label)]
            return [Work(ref=ref, tenant_root=root, table=await source.open(ref)) for ref in sorted(refs)]
        except LakesweepError as exc:
            return [self.unreadable(tenant, dataset, exc)]
        except Exception as exc:  # noqa: BLE001 - a bug that one dataset meets must not hide the others
            return [self.unreadable(tenant, dataset, run_results.unexpected(exc))]

    def unreadable(self, tenant: TenantSettings, dataset: DatasetSettings, why: LakesweepError) -> Work:
        """Stands for all tables of a dataset that cannot be listed."""
        return Work(ref=whole_dataset(tenant, dataset), tenant_root=Location.parse(tenant.root), problem=why)

    async def reopened(self, work: Work) -> Work:
        """A fresh handle on the same table: one that is used for months would remember all it ever read."""
        tenant = self.settings.tenant(work.ref.tenant)
        dataset = tenant.dataset(work.ref.dataset) if tenant else None
        if work.table is None or tenant is None or dataset is None:
            return work
        return replace(work, table=await self.adapters.format(tenant, dataset).open(work.ref))

    def datasets(self) -> list[tuple[TenantSettings, DatasetSettings]]:
        return [(tenant, dataset) for tenant in self.settings.tenants for dataset in tenant.datasets]

    async def _bare(self, location: Location, format: FormatName | None, root: Location | None) -> Work:
        """A location inside a configured tenant's root belongs to that tenant: its S3, root and dry_run apply."""
        here = targets.real(location)
        owner = next((t for t in self.settings.tenants if targets.real(Location.parse(t.root)).overlaps(here)), None)
        configured = await self._configured_at(here, format, owner) if owner else None
        if configured:
            return configured if root is None else replace(configured, tenant_root=root)
        if root is None:
            root = Location.parse(owner.root) if owner else location
        table = await self.adapters.bare_table(location, format, root, owner.id if owner else "")
        return Work(ref=table.ref, tenant_root=root, table=table, bare=True, bare_tenant=owner.id if owner else "")

    async def _configured_at(self, here: Location, format: FormatName | None, tenant: TenantSettings) -> Work | None:
        """A configured table by its location: its settings, lease and holds apply however it is named."""
        for ref, places in (await self.neighbours.of(tenant)).items():
            dataset = tenant.dataset(ref.dataset)
            is_here = here.as_directory() in {targets.real(place).as_directory() for place in places}
            if is_here and dataset and format in (None, ref.format) and not is_of_no_dataset(ref):
                table = await self.adapters.format(tenant, dataset).open(ref)
                return Work(ref=ref, tenant_root=Location.parse(tenant.root), table=table)
        return None


async def refuse_missing_directories(tenant: TenantSettings, dataset: DatasetSettings) -> None:
    """A disk that is not mounted is not a dataset without tables. Only a disk can tell: a bucket has no directories."""
    name = f"{tenant.id}/{dataset.id}"
    places = [(f"`{key}` of {name}", address) for key, address in dataset.places.items()]
    for what, address in places:
        await _refuse_missing_directory(what, address, name)
    await refuse_missing_root(tenant, name)


async def refuse_missing_root(tenant: TenantSettings, name: str) -> None:
    """`name` is what may be new: the tenant, or a dataset of it."""
    await _refuse_missing_directory(f"`root` of tenant {tenant.id}", tenant.root, name)


async def _refuse_missing_directory(what: str, address: str, name: str) -> None:
    place = Location.parse(address)
    if place.is_local and (problem := await asyncio.to_thread(_directory_problem, Path(place.path))):
        raise CatalogUnavailable(
            f"{what} is {address}, but {problem}. Is a disk not mounted? Mount it, or correct the settings; if "
            f"{name} is new and has no tables yet, create the directory"
        )


def _directory_problem(path: Path) -> str | None:
    try:
        return None if stat.S_ISDIR(path.stat().st_mode) else "that is no directory"
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such directory"
    except OSError as exc:
        return f"it cannot be read: {exc.strerror}"
