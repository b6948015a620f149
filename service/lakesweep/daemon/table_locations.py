"""Where a tenant's tables keep their files, for the guard against two tables in one place.

It takes a look at every table, so the answer is kept for a while; it is thrown away when the tenant's tables
change. Tenant roots never overlap, so other tenants need not be queried.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime, timedelta

import structlog

from lakesweep.daemon.adapters import Adapters
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.clock import Clock
from lakesweep.ports.table import CatalogTables, ClaimsMore
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.storage.local.same_place import linked

log = structlog.get_logger()

KEPT_FOR = timedelta(hours=1)
"""A table that is moved to another place without a new name is noticed after this at the latest."""

_OUTSIDE = "/"
"""Begins the name of a table that is outside of its dataset's namespace."""

PlacesByTable = Mapping[TableRef, tuple[Location, ...]]


class TableLocations:
    """One read per tenant. Concurrent callers wait for the same one."""

    def __init__(self, adapters: Adapters, clock: Clock) -> None:
        self._adapters = adapters
        self._clock = clock
        self._known: dict[str, tuple[datetime, PlacesByTable]] = {}
        self._last: dict[tuple[str, str], dict[TableRef, tuple[Location, ...]]] = {}
        self._problems: dict[tuple[str, str], str] = {}
        self._changes: Counter[str] = Counter()
        """How often a tenant's tables have changed: an answer to an earlier request may lack the newest."""
        self._reading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._places: dict[str, PlacesByTable] = {}
        """By tenant, as last read, completely or not."""

    async def of(self, tenant: TenantSettings) -> PlacesByTable:
        """The places of all tables of a tenant. A dataset that does not answer keeps the places last known of it."""
        async with self._reading[tenant.id]:
            found = self._known.get(tenant.id)
            now = self._clock.now()
            if found is None or not found[0] <= now < found[0] + KEPT_FOR:
                changes = self._changes[tenant.id]
                places, complete = await self._read(tenant)
                found = (now, places)
                if complete and changes == self._changes[tenant.id]:
                    self._known[tenant.id] = found
            self._places[tenant.id] = found[1]
            return found[1]

    async def claimed(self, tenant: TenantSettings) -> list[Location]:
        """Places besides those of its tables that are somebody's, as its datasets report, and what links in their
        places lead to. See `problem`."""
        found = await linked([place for where in (await self.of(tenant)).values() for place in where])
        for dataset in tenant.datasets:
            try:
                source = self._adapters.format(tenant, dataset)
                found += await source.claimed() if isinstance(source, ClaimsMore) else ()
            except Exception as exc:  # noqa: BLE001 - as in `_ask`
                self._problems[tenant.id, dataset.id] = str(exc)
                self._known.pop(tenant.id, None)
        return found

    def problem(self, tenant: str, dataset: str) -> str | None:
        """Why the places of a dataset's tables are not known now, as of the last time they were requested."""
        return self._problems.get((tenant, dataset))

    def forget(self, tenant: str) -> None:
        """Read again next time: the tenant has other tables now."""
        self._known.pop(tenant, None)
        self._changes[tenant] += 1

    async def _read(self, tenant: TenantSettings) -> tuple[PlacesByTable, bool]:
        """The places, and whether every dataset answered."""
        by_dataset: dict[str, PlacesByTable] = {}
        catalogs: dict[str, Hashable] = {}
        complete = True
        for dataset in tenant.datasets:
            try:
                source = self._adapters.format(tenant, dataset)
                if isinstance(source, CatalogTables):
                    catalogs[dataset.id] = source.catalog_identity
                found = await source.locations()
                self._last[tenant.id, dataset.id] = found
            except Exception as exc:  # noqa: BLE001 - a bug that one dataset meets must not stop the others
                # Refusing every table of the tenant for one catalog that is away would let it stop them all.
                log.warning("neighbours_unknown", dataset=dataset.id, reason=str(exc))
                self._problems[tenant.id, dataset.id] = str(exc)
                found, complete = self._last.get((tenant.id, dataset.id), {}), False
            else:
                self._problems.pop((tenant.id, dataset.id), None)
            by_dataset[dataset.id] = found
        answered = {one: catalogs[one] for one in catalogs if (tenant.id, one) not in self._problems}
        return _without_repeated(tenant, by_dataset, catalogs, answered), complete


def without_itself(places: PlacesByTable, bare: TableRef) -> PlacesByTable:
    """The neighbours of a bare location: it may be a table of a catalog that is in no dataset."""
    own = bare.name.rstrip("/")
    return {
        ref: where
        for ref, where in places.items()
        if not (is_of_no_dataset(ref) and ref.format is bare.format and own in {one.raw.rstrip("/") for one in where})
    }


def other_roots(tenants: Iterable[TenantSettings], tenant: str) -> PlacesByTable:
    """The roots of all other tenants. By name none overlaps another, but a link or a mount may lead into one."""
    no_table = next(iter(FormatName))  # a place has no format, and any will do
    return {
        TableRef(tenant=TenantId(other.id), dataset="", name=_OUTSIDE, format=no_table): (Location.parse(other.root),)
        for other in tenants
        if other.id != tenant
    }


def is_of_no_dataset(ref: TableRef) -> bool:
    """Is it a table that a dataset's catalog lists besides those of the dataset?"""
    return ref.name.startswith(_OUTSIDE)


def _without_repeated(
    tenant: TenantSettings,
    by_dataset: Mapping[str, PlacesByTable],
    catalogs: Mapping[str, Hashable],
    answered: Mapping[str, Hashable],
) -> PlacesByTable:
    """A catalog with several datasets lists the tables of each for all of them. What its own dataset lists, too, is no
    second table, if it is certainly the same catalog; and if it listed it now: what is remembered may have moved."""
    own = {dataset.id: _own_names(dataset, by_dataset[dataset.id]) for dataset in tenant.datasets}
    places: dict[TableRef, tuple[Location, ...]] = {}
    for dataset in tenant.datasets:
        same = [one for one in answered if one != dataset.id and answered[one] == catalogs.get(dataset.id)]
        for ref, where in by_dataset[dataset.id].items():
            name = ref.name.removeprefix(_OUTSIDE)
            if not is_of_no_dataset(ref) or not any(name in own[other] for other in same):
                places[ref] = where
    return places


def _own_names(dataset: DatasetSettings, by_dataset: PlacesByTable) -> set[str]:
    before = f"{dataset.namespace}." if dataset.namespace else ""
    return {f"{before}{ref.name}" for ref in by_dataset if not is_of_no_dataset(ref)}
