"""Which files a tenant's tables use in each other's places, and since when that is known.

Every table of the tenant is asked before each plan: see `shared_files` for how. A dataset that does not answer counts
as last read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial, reduce
from operator import or_

import pyarrow as pa
import structlog

from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.linked_files import through_links, top_directories
from lakesweep.daemon.shared_files import SharedFileIndex, Uses, first_segments, inside
from lakesweep.daemon.table_locations import PlacesByTable, TableLocations
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

log = structlog.get_logger()

SHARED_FILES_KEPT_FOR = timedelta(minutes=5)
"""If reading takes long, what tables use in each other's places may be known from a read up to this old."""
QUICK_SECONDS = 0.5
"""A read that takes no longer is repeated every time: a clone may have been made since."""
_REST = 4
"""The next read waits for this many times as long as the last one took."""


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


class TableUses(TableLocations):
    """One read per tenant. Concurrent callers wait for the same one."""

    def __init__(self, adapters: Adapters, clock: Clock) -> None:
        super().__init__(adapters, clock)
        self._indexes: dict[tuple[str, str], SharedFileIndex] = {}
        self._shared: dict[str, _SharedFiles] = {}
        self._later: dict[TableRef, tuple[_SharedFiles, bool]] = {}
        """By table that is to be read later: what was read without it, and whether all datasets answered."""
        self._users: dict[tuple[TableRef, str], dict[TableRef, str]] = {}
        """By table and tenant, as last read: which of the tenant's tables use files of it, and the first of them."""
        self._used_outside_root: dict[str, tuple[dict[str, list[str]], bool]] = {}
        self._directories: dict[TableRef, tuple[Uses, list[str]]] = {}
        self._reading_shared: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

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
        for dataset in tenant.datasets:
            if dataset.id == ref.dataset:
                read = partial(self._read_one, tenant, dataset, ref, begins)
                _, answered = await self._uses_by_dataset(tenant, dataset, read)
                complete = complete and answered
        # Of the others what was read last, which may be after `found`.
        last = (self._index(tenant, dataset).last() for dataset in tenant.datasets)
        uses = reduce(or_, last, found.uses)
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

    def uses(self) -> dict[TableRef, Uses]:
        """What the tables of all tenants use outside their own places, as `shared_files` last read it."""
        return {ref: uses for shared_files in self._shared.values() for ref, uses in shared_files.uses.items()}

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
        super().forget(tenant)
        self._shared.pop(tenant, None)
