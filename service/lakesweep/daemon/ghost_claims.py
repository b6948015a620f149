"""Who claims what below a tenant's root: checked before a ghost is reported or planned, and before each delete.

A catalog or table that cannot be read may claim anything, so then nothing is a ghost. Reads only.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakesweep.daemon import targets
from lakesweep.daemon.file_users import NOBODY
from lakesweep.daemon.shared_files import file_names
from lakesweep.daemon.table_locations import other_roots
from lakesweep.model.errors import LakesweepError, Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.table import TableRef
from lakesweep.ports.surroundings import DirectoryIdentity
from lakesweep.ports.table import ReadsAnyway
from lakesweep.settings.cascade import trash_places
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.storage.local.same_place import identify

if TYPE_CHECKING:
    from lakesweep.daemon.app import App


class Claims:
    """The places that were claimed when it was built. It is queried for each of thousands of directories, so it does
    not go through thousands of places each time."""

    def __init__(
        self,
        places: Iterable[Location],
        uuids: Iterable[str] = (),
        identities: Mapping[Location, DirectoryIdentity] | None = None,
    ) -> None:
        """Local places as they really lead. `identities` are those of the places, as far as they are on a disk."""
        self.uuids = frozenset(uuids)
        self.identities = identities or {}
        self._by_key = {_key(place): place for place in places}
        self._keys = sorted(self._by_key)
        self._anywhere = [place for place in self._by_key.values() if place.may_be_any_bucket]

    def holds(self, place: Location) -> bool:
        """Is it a claimed place, or inside one?"""
        return self._above(_key(place)) is not None or self._odd(place) is not None

    def touches(self, place: Location) -> Location | None:
        """A claimed place that it is, is inside of, or is around."""
        key = _key(place)
        if (found := self._above(key)) is not None:
            return found
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at].startswith(key):
            return self._by_key[self._keys[at]]
        return self._odd(place)

    def _odd(self, place: Location) -> Location | None:
        """Behind an access point may be any bucket, so only the keys are compared."""
        odd = self._by_key.values() if place.may_be_any_bucket else self._anywhere
        return next((one for one in odd if one.overlaps(place) and not place.contains(one)), None)

    def _above(self, key: str) -> Location | None:
        ends = (at for at, sign in enumerate(key, 1) if sign == "/")
        return next((self._by_key[key[:end]] for end in ends if key[:end] in self._by_key), None)


def _key(place: Location) -> str:
    """As `Location.overlaps` compares it."""
    return place.match_key.rstrip("/") + "/"


@dataclass(frozen=True, kw_only=True)
class ClaimsReader:
    """Finds out who claims the places of one tenant."""

    app: App
    tenant: TenantSettings

    async def read(self) -> Claims:
        """Catalogs, datasets and registered locations of all tenants, read again: one may use a place of another.
        Refused if one of them cannot be read."""
        places = await self._places()
        uuids: set[str] = set()
        for tenant in self.app.settings.tenants:
            uuids |= await self._read_every_table(tenant)
        real = list(dict.fromkeys(targets.real(place) for place in places))
        return Claims(real, uuids, await identify(real))

    async def _places(self) -> list[Location]:
        neighbours = self.app.neighbours
        places: list[Location] = []
        for tenant in self.app.settings.tenants:
            neighbours.forget(tenant.id)
            places += [place for where in (await neighbours.of(tenant)).values() for place in where]
            places += await neighbours.claimed(tenant)
            places += trash_places(self.app.settings, tenant)
            places += [Location.parse(one.inventory) for one in tenant.datasets if one.inventory]
        self._refuse_silent_datasets()
        places += [root for where in other_roots(self.app.settings.tenants, self.tenant.id).values() for root in where]
        return places + self._own_places()

    async def refuse_claimed_place(self, places: Sequence[Location]) -> None:
        """Refused if one of them is claimed by now. Reads places only, so that little can happen meanwhile."""
        claims = Claims(targets.real(one) for one in await self._places())
        for place in places:
            if claim := claims.touches(targets.real(place)):
                raise claimed(place, f"it overlaps {claim}, which is in use")

    async def refuse_used(self, place: Location, claims: Claims, *, elsewhere: Sequence[Location] = ()) -> None:
        """Refused if somebody claims the place, or any known table uses a file in it. `elsewhere` are further places
        that its own metadata names."""
        for one in (place, *elsewhere):
            if claim := claims.touches(targets.real(one)):
                raise claimed(place, f"it overlaps {claim}, which is in use")
        if (mine := (await identify([place])).get(place)) is not None:
            for claim, theirs in claims.identities.items():
                if mine.overlaps(theirs):
                    raise claimed(place, f"it is {claim} under another name (a link or a mount)")
        shared: dict[TableRef, list[str]] = {}
        spelled = list(dict.fromkeys([targets.real(place), place]))
        for tenant in self.app.settings.tenants:
            shared |= await self.app.neighbours.shared_files(tenant, spelled, NOBODY)
        self.refuse_unknown()  # the last catalog may have been the first not to answer
        for other, paths in shared.items():
            raise claimed(place, f"{other} uses {len(paths)} files in it, first {paths[0]}")

    def used_names(self) -> dict[str, TableRef]:
        """The names of all files that tables use outside their places, as `refuse_used` last asked."""
        return file_names(self.app.neighbours.uses())

    def refuse_unknown(self) -> None:
        """Refused if a dataset, or a table's own list of its files, could not be read when `refuse_used` last asked."""
        self._refuse_silent_datasets()
        for tenant in self.app.settings.tenants:
            for ref, why in self.app.neighbours.unread(tenant.id).items():
                raise _unknown(f"{ref.label} cannot be read, and may use files of a ghost: {why}")

    def _refuse_silent_datasets(self) -> None:
        for tenant, dataset in self.app.discovery.datasets():
            problem = self.app.neighbours.problem(tenant.id, dataset.id)
            if problem is not None:
                name = f"{tenant.id}/{dataset.id}"
                raise _unknown(f"{name} cannot be read, and may claim what looks like a ghost: {problem}")

    async def _read_every_table(self, tenant: TenantSettings) -> set[str]:
        """Their uuids. One that cannot be read may use files anywhere."""
        uuids = set()
        for dataset in tenant.datasets:
            works = await self.app.discovery.discover(tenant, dataset)
            await self._refuse_suddenly_empty(tenant, dataset, works)
            for work in works:
                if work.table is None:
                    raise _unknown(f"{work.ref.label} cannot be read: {work.problem}")
                if isinstance(work.table, ReadsAnyway):
                    work.table.read_anyway()  # one that is never cleaned uses files all the same
                try:
                    state = await work.table.load()
                except LakesweepError as exc:
                    raise _unknown(f"{work.ref.label} cannot be read, and may use files of a ghost: {exc}") from exc
                if state.table_uuid:
                    uuids.add(state.table_uuid)
        return uuids

    async def _refuse_suddenly_empty(
        self, tenant: TenantSettings, dataset: DatasetSettings, works: Sequence[targets.Work]
    ) -> None:
        """A disk that is not mounted, or a catalog that lost its entries, looks like one without tables."""
        name = f"{tenant.id}/{dataset.id}"
        place = next(map(Location.parse, dataset.places.values()), None)
        if place is not None and place.is_local and not await asyncio.to_thread(os.path.isdir, place.path):
            raise _unknown(
                f"{name} is configured at {place}, but there is no such directory (is a disk not mounted?): its tables "
                "may use files of a ghost. Bring it back, or remove the dataset from the settings"
            )
        if works:
            return
        known = sorted(one for one in await self.app.state.last_planned([tenant.id]) if one.startswith(f"{name}/"))
        if known:
            raise _unknown(
                f"{name} has no tables now, and had {known[0]} before: they may use files of a ghost. Bring them back, "
                "or remove the dataset from the settings"
            )

    def _own_places(self) -> list[Location]:
        """Where the service keeps its own files: plans, ledgers, records, scratch."""
        service, scratch = self.app.settings.service, self.app.settings.engine.spark.scratch
        given = [str(service.data_dir), service.artifacts, service.audit_anchor, scratch]
        own = [self.app.settings.artifacts]
        for text in filter(None, given):
            try:
                own.append(Location.parse(text))
            except ValueError:
                continue  # a scratch place that only Spark can reach
        return own


def claimed(place: Location, why: str) -> Refused:
    return Refused(RefusalCode.GHOST_CLAIMED, f"{place} is not a ghost: {why}")


def _unknown(why: str) -> Refused:
    return Refused(RefusalCode.NEIGHBOURS_UNKNOWN, why)
