"""Where a tenant's tables keep their files, for the guard against two tables in one place.

It takes a look at every table, so the answer is kept for a while; it is thrown away when the tenant's tables
change. Tenant roots never overlap, so other tenants need not be queried.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa
import structlog

from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.shared_files import SharedFileIndex, Uses, first_segments, inside, through_links, top_directories
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.clock import Clock
from lakesweep.ports.table import CatalogTables, ClaimsMore
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.storage.local.same_place import linked

log = structlog.get_logger()

SHARED_FILES_KEPT_FOR = timedelta(minutes=5)
"""So old may be at most what is known of files that tables use in each other's places, if reading them takes long."""
QUICK_SECONDS = 0.5
"""What takes no longer is read anew every time: a clone may have been made since."""
_REST = 4
"""The next read waits for this many times as long as the last one took."""
KEPT_FOR = timedelta(hours=1)
"""A table that is moved to another place without a new name is noticed after this at the latest."""

_OUTSIDE = "/"
"""Begins the name of a table that is outside of its dataset's namespace."""

PlacesByTable = Mapping[TableRef, tuple[Location, ...]]


@dataclass(frozen=True, slots=True)
class _SharedFiles:
    """What the tables of a tenant use in each other's places."""

    read_at: datetime
    took_seconds: float
    uses: dict[TableRef, Uses]
    begins: frozenset[str]
    """The first segments of all places that were looked at."""
    unread: TableRef | None = None
    """The table that asked, if it is to be read later: its own uses are as they were known before."""

    @property
    def lasts(self) -> timedelta:
        if self.took_seconds <= QUICK_SECONDS:
            return timedelta(0)
        return min(SHARED_FILES_KEPT_FOR, timedelta(seconds=(1 + _REST) * self.took_seconds))


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
        self._indexes: dict[tuple[str, str], SharedFileIndex] = {}
        self._shared: dict[str, _SharedFiles] = {}
        self._later: dict[TableRef, tuple[_SharedFiles, bool]] = {}
        """By table that is to be read later: what was read without it, and whether all datasets answered."""
        self._users: dict[tuple[TableRef, str], dict[TableRef, str]] = {}
        """By table and tenant, as last read: which of the tenant's tables use files of it, and the first of them."""
        self._used_outside_root: dict[str, tuple[dict[str, list[str]], bool]] = {}
        self._directories: dict[TableRef, tuple[Uses, list[str]]] = {}
        self._places: dict[str, PlacesByTable] = {}
        """By tenant, as last read, completely or not."""
        self._reading_shared: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

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

    async def shared_files(
        self, tenant: TenantSettings, roots: Sequence[Location], own: TableRef, *, own_later: bool = False
    ) -> dict[TableRef, list[str]]:
        """By table: the files below the roots of `own` that it uses; as last read if a dataset does not answer. With
        `own_later` the table itself is read by `read_own`, which has to follow."""
        async with self._reading_shared[tenant.id]:
            found, now = self._shared.get(tenant.id), self._clock.now()
            wanted = frozenset(first_segments(roots).to_pylist())
            stands = found is not None and found.read_at <= now < found.read_at + found.lasts
            if found is None or not stands or not wanted <= found.begins:
                found = await self._read_shared(tenant, roots, own if own_later else None)
            elif found.unread is not None and not (own_later and found.unread == own):
                found = await self._with_own(tenant, found.unread, found, complete=True)
        shared_files = inside(found.uses, roots, own)
        others = {ref: uses.local_paths() for ref, uses in found.uses.items() if ref != own}
        for other, paths in (await through_links(others, roots)).items():
            shared_files[other] = [*shared_files.get(other, ()), *paths]
        self._users[own, tenant.id] = {other: paths[0] for other, paths in shared_files.items()}
        for other, paths in shared_files.items():
            log.info("files_lent", table=own.label, to=other.label, files=len(paths), first=paths[0])
        return shared_files

    async def _read_shared(
        self, tenant: TenantSettings, roots: Sequence[Location], unread: TableRef | None
    ) -> _SharedFiles:
        now, begun, changes = self._clock.now(), asyncio.get_running_loop().time(), self._changes[tenant.id]
        places = await self.of(tenant)
        begins = first_segments([*(place for where in places.values() for place in where), *roots])
        begins = pa.array(sorted({*begins.to_pylist(), *top_directories(roots)}), pa.string())
        uses_by_table, complete = await self._uses_by_tenant(tenant, places, begins, unread)
        took = asyncio.get_running_loop().time() - begun
        found = _SharedFiles(now, took, uses_by_table, frozenset(begins.to_pylist()), unread)
        if complete and changes == self._changes[tenant.id]:
            self._shared[tenant.id] = found
        if unread is None:
            self._note_directories(tenant, uses_by_table, complete=complete)
        else:
            self._later[unread] = (found, complete)
        return found

    async def read_own(self, tenant: TenantSettings, own: TableRef) -> None:
        """Read what `shared_files` left for later, if it did."""
        async with self._reading_shared[tenant.id]:
            if left := self._later.pop(own, None):
                found, complete = left
                await self._with_own(tenant, own, found, complete=complete)

    async def _with_own(
        self, tenant: TenantSettings, ref: TableRef, found: _SharedFiles, *, complete: bool
    ) -> _SharedFiles:
        """The same, and the table that was to be read later. The others are not read again."""
        begins = pa.array(sorted(found.begins), pa.string())
        uses = found.uses
        for dataset in tenant.datasets:
            if dataset.id == ref.dataset:
                read = partial(self._read_one, tenant, dataset, ref, begins)
                known, answered = await self._uses_by_dataset(tenant, dataset, read)
                uses, complete = uses | known, complete and answered
        whole = replace(found, uses=uses, unread=None)
        if complete and self._shared.get(tenant.id) is found:
            self._shared[tenant.id] = whole
        self._note_directories(tenant, uses, complete=complete)
        return whole

    def _note_directories(self, tenant: TenantSettings, uses_by_table: dict[TableRef, Uses], *, complete: bool) -> None:
        used = {ref.label: self._outside(ref, uses, tenant.root) for ref, uses in uses_by_table.items()}
        self._used_outside_root[tenant.id] = ({label: where for label, where in used.items() if where}, complete)

    def _outside(self, ref: TableRef, uses: Uses, root: str) -> list[str]:
        """Looked up again only where the table was read again."""
        known = self._directories.get(ref)
        if known is None or known[0] is not uses:
            known = self._directories[ref] = (uses, uses.directories_outside(root))
        return known[1]

    async def _uses_by_tenant(
        self, tenant: TenantSettings, places: PlacesByTable, begins: pa.Array, unread: TableRef | None
    ) -> tuple[dict[TableRef, Uses], bool]:
        """By all tables, including this one: what it uses counts for others while its catalog does not answer."""
        found: dict[TableRef, Uses] = {}
        complete = True
        for dataset in tenant.datasets:
            read = partial(self._read_all, tenant, dataset, places, begins, unread)
            uses, whole = await self._uses_by_dataset(tenant, dataset, read)
            found |= uses
            complete = complete and whole
        return found, complete

    async def _uses_by_dataset(
        self, tenant: TenantSettings, dataset: DatasetSettings, read: Callable[[], Awaitable[None]]
    ) -> tuple[dict[TableRef, Uses], bool]:
        """What the tables of a dataset use after this read, and whether that is known as of now."""
        index = self._index(tenant, dataset)
        try:
            await read()
        except Exception as exc:  # noqa: BLE001 - likewise
            log.warning("borrowed_files_unknown", dataset=dataset.id, reason=str(exc))
            self._problems[tenant.id, dataset.id] = str(exc)
            self._known.pop(tenant.id, None)
            return index.last(), False
        return index.last(), True

    async def _read_all(
        self,
        tenant: TenantSettings,
        dataset: DatasetSettings,
        places: PlacesByTable,
        begins: pa.Array,
        unread: TableRef | None,
    ) -> None:
        source = self._adapters.format(tenant, dataset)
        # Read anew, unlike the places: a clone may be younger than these.
        refs = dict.fromkeys([*(ref for ref in places if ref.dataset == dataset.id), *await source.tables()])
        await self._index(tenant, dataset).of([await source.open(ref) for ref in refs], begins, unread)

    async def _read_one(
        self, tenant: TenantSettings, dataset: DatasetSettings, ref: TableRef, begins: pa.Array
    ) -> None:
        table = await self._adapters.format(tenant, dataset).open(ref)
        await self._index(tenant, dataset).read_one(begins, table)

    def _index(self, tenant: TenantSettings, dataset: DatasetSettings) -> SharedFileIndex:
        if (tenant.id, dataset.id) not in self._indexes:
            cache = partial(self._adapters.cache, tenant.id)
            self._indexes[tenant.id, dataset.id] = SharedFileIndex(self._adapters.storage(tenant.id), cache)
        return self._indexes[tenant.id, dataset.id]

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

    def uses(self) -> dict[TableRef, Uses]:
        """What the tables of all tenants use outside their own places, as `shared_files` last read it."""
        return {ref: uses for shared_files in self._shared.values() for ref, uses in shared_files.uses.items()}

    def problem(self, tenant: str, dataset: str) -> str | None:
        """Why the places of a dataset's tables are not known now, as of the last time they were requested."""
        return self._problems.get((tenant, dataset))

    def unread(self, tenant: str) -> dict[TableRef, str]:
        """Tables of which something could not be read for good when it was last read what they use, and why."""
        own = [known for (owner, _), known in self._indexes.items() if owner == tenant]
        return {ref: why for known in own for ref, why in known.unread.items()}

    def used_outside_root(self, tenant: str) -> tuple[dict[str, list[str]], bool] | None:
        """By label: the directories outside the tenant's root where its tables use files; and did all of its datasets
        answer? None if it was not queried."""
        return self._used_outside_root.get(tenant)

    def users(self, tenant: TenantSettings, roots: Sequence[Location], own: TableRef) -> dict[str, str]:
        """By label: tables that use files of `own` (as last read by `shared_files`) or share its place, and how."""
        found = {
            ref.label: f"was at {place}"
            for ref, where in self._places.get(tenant.id, {}).items()
            for place in where
            if ref != own and any(root.overlaps(place) for root in roots)
        }
        known = [uses for (table, _), uses in self._users.items() if table == own]
        return found | {ref.label: f"used {first}" for uses in known for ref, first in uses.items()}

    def doubt(self, tenants: Iterable[TenantSettings], label: str) -> str | None:
        """Why it is not known which files a table uses. None if it is known, or was once in this process."""
        datasets = [(tenant.id, dataset.id) for tenant in tenants for dataset in tenant.datasets]
        key = next((one for one in datasets if label.startswith("/".join((*one, "")))), None)
        known = self._indexes.get(key) if key else None
        if key is None or known is None or any(ref.label == label for ref in known.whole):
            return None
        if problem := self._problems.get(key):
            return problem
        if known.empty:
            return f"{'/'.join(key)} has no tables at all now; if that is right, remove it from the settings"
        return next((why for ref, why in known.unread.items() if ref.label == label), None)

    def forget(self, tenant: str) -> None:
        """Read again next time: the tenant has other tables now."""
        self._known.pop(tenant, None)
        self._shared.pop(tenant, None)
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
