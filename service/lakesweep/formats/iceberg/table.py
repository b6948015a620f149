"""One Iceberg table behind the Table port: load, plan, commit, references. Decisions live in the modules it calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lakesweep.formats import special_files
from lakesweep.formats.iceberg import (
    expire,
    explain,
    foreign_tables,
    identity,
    layout,
    metadata,
    ref_history,
    references,
    retention,
    state,
    unsupported,
)
from lakesweep.formats.iceberg.catalog import Pointer
from lakesweep.formats.iceberg.manifest_lists import ManifestLists
from lakesweep.formats.iceberg.metadata import TableMetadata
from lakesweep.formats.iceberg.metadata_source import CatalogSource, Source
from lakesweep.formats.iceberg.pending_manifests import PendingManifests
from lakesweep.formats.iceberg.rivals import Rivals
from lakesweep.formats.iceberg.state import IcebergState
from lakesweep.model.errors import CommitConflict, LakesweepError, NotFound, Refused, StorageError, Unreadable
from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot
from lakesweep.model.table import TableRef
from lakesweep.ports.references import References
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import TableState

_LOAD_ATTEMPTS = 3


class IcebergTable:
    """An open table. Keeps the manifest lists it has read, so that asking again costs only what is new."""

    def __init__(self, ref: TableRef, source: Source, storage: Storage, tenant_root: Location) -> None:
        self.ref = ref
        self.executable = source.executable
        self._source = source
        self._storage = storage
        self._tenant_root = tenant_root
        self._place: Location | None = None
        self._lists = ManifestLists(storage)
        self._rivals = Rivals(storage, self._lists)
        self._pending = PendingManifests(storage)
        self._no_expiry: tuple[int | None, str | None] = (None, None)
        """The answer, and the hash of the metadata file that it holds for: finding out means parsing all of it."""
        self._committed_away: frozenset[int] = frozenset()
        """Snapshots that this handle has expired. One that is in the table again was put back, and is live."""

    async def head(self) -> str:
        """The address of the current metadata file; costs one question to the catalog and no file."""
        return _address((await self._source.pointer()).metadata_location)

    def place(self) -> Location | None:
        """As its metadata says; if that cannot be read, the directory above the `metadata/` that the catalog names."""
        return self._place

    async def load(self) -> TableState:
        """The table as its catalog points at it now."""
        try:
            pointer, address, data = await self._current()
        except StorageError as exc:
            raise Unreadable(exc.address, exc.why) from exc
        parsed = await asyncio.to_thread(metadata.parse, address, data)
        self._place = Location.parse(parsed.location)
        unsupported.refuse_uncleanable(parsed, pointer.properties)
        unsupported.refuse_outdated(parsed, pointer)
        if self._no_expiry[0] != hash(data):
            self._no_expiry = (hash(data), await self._source.no_expiry(parsed, data))
        pending = await self._pending.find(parsed, self._tenant_root)
        native = IcebergState(metadata=parsed, pointer=pointer, no_expiry=self._no_expiry[1], pending=pending)
        return state.build(self.ref, native, self._tenant_root)

    async def places(self) -> tuple[str, tuple[Location, ...]]:
        """The head, and where files are kept at it, even of a table that may not be cleaned."""
        _, address, data = await self._current()
        known = identity.read(address, data)
        if known.location is None:
            # Version 4 may leave it out: then the metadata file's own place is all there is to know.
            return address, (Location.parse(address.rpartition("/metadata/")[0] or address),)
        return address, layout.places_of(known.location, known.properties, known.named)

    async def load_at(self, head: str, now_state: TableState) -> TableState | None:
        """An earlier metadata file of the same table, if it is still there."""
        earlier = await self._read(head)
        if earlier is None or earlier.uuid != now_state.table_uuid:
            return None
        native = replace(_native(now_state), metadata=earlier)
        try:
            return state.build(self.ref, native, self._tenant_root)
        except Refused:
            return None

    def plan_expiry(self, state: TableState, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        """Iceberg's own rules; nothing at all where the catalog could not commit it."""
        native = _native(state)
        plan = retention.plan(native.metadata, policy, now)
        if native.no_expiry is None or plan.empty:
            return plan
        waiting = tuple(KeptSnapshot(id=snapshot.id, why="its expiry is skipped") for snapshot in plan.expire)
        return ExpiryPlan(head=plan.head, keep=plan.keep + waiting, skipped=native.no_expiry)

    async def commit_expiry(
        self, state: TableState, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableState, ExpiryPlan]:
        """Through the catalog, retried from fresh metadata, verified afterwards."""
        if not isinstance(self._source, CatalogSource):
            raise Refused("plan_only", f"{self.ref} has no catalog to commit to")
        commit = expire.ExpiryCommit(
            source=self._source,
            load=self.load,
            plan=lambda fresh: self.plan_expiry(fresh, policy, now),
            read=self._read,
            fence=fence,
        )
        after, committed = await commit.run(state)
        self._committed_away |= _ids(committed)
        return after, committed

    async def references(self, state: TableState, expiring: ExpiryPlan, before: TableState | None = None) -> References:
        """Raises CommitConflict when the table has moved on and took a manifest list along: load and ask again."""
        current = _native(state).metadata
        earlier = await self._verified(current, _native(before).metadata) if before else None
        try:
            found = await references.collect(self._lists, current, _ids(expiring) - self._committed_away, earlier)
            found = replace(found, tolerated=(*found.tolerated, *await self._pending.named()))
            return await self._rivals.keep(found, current, state.roots)
        except NotFound as exc:
            if await self.head() != state.head:
                raise CommitConflict(f"{self.ref} was committed to while its manifest lists were read") from exc
            raise Unreadable(exc.address, "a retained snapshot names it, but storage has no such object") from exc

    async def foreign_owner(self, state: TableState, unreferenced: Sequence[str]) -> str | None:
        """Another table's metadata among the unreferenced files. A link would not be among them."""
        beside_head = Location.parse(state.head.rpartition("/")[0])
        await special_files.refuse(self._storage, *{beside_head, state.location.join("metadata")})
        own = _native(state).metadata
        # What rivals keep is referenced by now; it is judged all the same.
        unreferenced = [*unreferenced, *(path for path in self._rivals.found if path not in set(unreferenced))]
        whole = await self._rivals.listed(own) if len(unreferenced) >= METADATA_SHOWN else unreferenced
        evidence = await foreign_tables.find(self._storage, own, unreferenced, state.roots)
        self._rivals.leave_to_check(whole, own)
        if evidence and await self.head() != state.head:
            # It may be a commit that was under way when the table was read.
            now = await self.load()
            return await foreign_tables.find(self._storage, _native(now).metadata, unreferenced, now.roots)
        return evidence

    async def has_newcomers(self) -> bool:
        """Has a metadata file come that nobody has looked at? Also one that no catalog of ours knows."""
        return await self._rivals.have_come()

    async def after_sweep(self, state: TableState, expiring: ExpiryPlan) -> None:
        """Nothing: the metadata was complete before the first file went."""

    async def explain(self, state: TableState, source: Location) -> tuple[str, ...]:
        """Which snapshots and refs lead to a manifest or to a file named directly."""
        held = await explain.explain(self._lists, _native(state).metadata, source)
        return (*held, *await self._pending.explain(source))

    async def _current(self) -> tuple[Pointer, str, bytes]:
        """The pointer, and the address and contents of the metadata file that it names."""
        for _ in range(_LOAD_ATTEMPTS):
            pointer = await self._source.pointer()
            address = _address(pointer.metadata_location)
            above, found, _ = address.rpartition("/metadata/")
            self._place = Location.parse(above) if found else None
            try:
                return pointer, address, await self._storage.read(Location.parse(address))
            except NotFound as exc:
                if await self.head() == address:
                    raise Unreadable(address, "the catalog points at it, but storage has no such object") from exc
        raise CommitConflict(f"{self.ref} is being committed to faster than it can be read")

    async def _verified(self, current: TableMetadata, earlier: TableMetadata) -> TableMetadata | None:
        """An earlier state frees files only if no ref was lost on the way from it; unknown frees nothing."""
        found = await ref_history.verify(current, earlier, earlier.refs, self._read)
        if found.lost:
            raise expire.lost_ref(found.lost[0])
        return earlier if found.complete else None

    async def _read(self, address: str) -> TableMetadata | None:
        try:
            data = await self._storage.read(Location.parse(address))
            return await asyncio.to_thread(metadata.parse, address, data)
        except LakesweepError:
            return None


def _address(text: str) -> str:
    try:
        return Location.parse(text).raw
    except ValueError as exc:
        raise Unreadable(text, f"the catalog's pointer is {exc}") from exc


def _ids(plan: ExpiryPlan) -> frozenset[int]:
    return frozenset(int(snapshot.id) for snapshot in plan.expire)


def _native(state: TableState) -> IcebergState:
    native: IcebergState = state.native
    return native
