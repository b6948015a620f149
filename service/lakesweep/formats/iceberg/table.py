"""One Iceberg table behind the Table port: load, plan, commit, references. Decisions live in the modules it calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from lakesweep.formats import reads
from lakesweep.formats.iceberg import expire, layout, lineage, metadata, ref_history, retention, unsupported
from lakesweep.formats.iceberg.catalog import Pointer
from lakesweep.formats.iceberg.manifest_lists import ManifestLists
from lakesweep.formats.iceberg.metadata import EPOCH, TableMetadata
from lakesweep.formats.iceberg.metadata_source import CatalogSource, Source
from lakesweep.formats.iceberg.other_histories import OtherHistories, PendingManifests
from lakesweep.formats.iceberg.view import IcebergState, IcebergView, build, ids
from lakesweep.formats.unique_names import is_unique
from lakesweep.model.errors import CommitConflict, LakesweepError, NotFound, Refused, StorageError, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import TableView, own_view

_LOAD_ATTEMPTS = 3

_EARLIER_STATES = 100
"""States of the metadata log that are looked for: a log can name any number of files that are gone."""


class IcebergTable:
    """An open table. Keeps the manifest lists it has read, so that asking again costs only what is new."""

    def __init__(self, ref: TableRef, source: Source, storage: Storage, tenant_root: Location) -> None:
        self.ref = ref
        self.executable = source.executable
        self._read_anyway = False
        self._source = source
        self.storage = storage
        self._tenant_root = tenant_root
        self._place: Location | None = None
        self.lists = ManifestLists(storage)
        self.histories = OtherHistories(storage, self.lists)
        self.pending = PendingManifests(storage)
        self._no_expiry: tuple[int | None, str | None] = (None, None)
        """The answer, and the hash of the metadata file that it holds for: finding out means parsing all of it."""
        self.committed_away: frozenset[int] = frozenset()
        """Snapshots that this handle has expired. One that is in the table again was put back, and is live."""
        self._last_read: tuple[str, bytes] = ("", b"")
        """The metadata file that was read last, by its address, if its name is given only once."""
        self._earlier: dict[str, Location | None] = {}
        """Where the table was at earlier states, by their files."""
        self.planned_by: CleanupPolicy | None = None
        """The policy that was planned with last."""

    async def head(self) -> str:
        """The address of the current metadata file; costs one question to the catalog and no file."""
        return _address((await self._source.pointer()).metadata_location)

    def read_anyway(self) -> None:
        """Also with `gc.enabled=false`, as tables over the files of others have it."""
        self._read_anyway, self.executable = True, False

    def place(self) -> Location | None:
        """As its metadata says; if that cannot be read, the directory above the `metadata/` that the catalog names."""
        return self._place

    async def load(self) -> IcebergView:
        try:
            pointer, address, data = await self._current()
        except StorageError as exc:
            raise Unreadable(exc.address, exc.why) from exc
        parsed = await asyncio.to_thread(metadata.parse, address, data)
        self._place = Location.parse(parsed.location)
        if not self._read_anyway:
            unsupported.refuse_uncleanable(parsed, pointer.properties)
        unsupported.refuse_outdated(parsed, pointer)
        if self._no_expiry[0] != hash(data):
            self._no_expiry = (hash(data), await self._source.no_expiry(parsed, data))
        pending, listed = await self.pending.find(parsed, self._tenant_root)
        native = IcebergState(
            metadata=parsed,
            pointer=pointer,
            no_expiry=self._no_expiry[1],
            pending=pending,
            moved_from=await self._moved_from(parsed),
            listed=listed,
        )
        return build(self, native, self._tenant_root)

    async def _moved_from(self, current: TableMetadata) -> str | None:
        """A file of the table's history that was written elsewhere, or the oldest state in its log that is still there,
        if that has another location."""
        found = layout.written_elsewhere(current)
        if found is not None or not layout.may_hide_move(current):
            return found
        log, half = current.metadata_log, _EARLIER_STATES // 2
        for path in dict.fromkeys((*log[:half], *log[-half:])):
            if path not in self._earlier:
                self._earlier[path] = await self._location_at(path, current)
            earlier = self._earlier[path]
            if earlier is not None:
                return path if layout.is_elsewhere(earlier, current) else None
        return None

    async def _location_at(self, path: str, current: TableMetadata) -> Location | None:
        """Where the table was at an earlier state; None if that is gone, or another table's."""
        trouble = "only it shows whether the table was moved, but storage says: "
        try:
            with reads.must_answer(path, trouble, may_be_missing=True):
                data = await self.storage.read(Location.parse(path))
        except (NotFound, ValueError):
            return None
        earlier = await asyncio.to_thread(lineage.read_identity, path, data)
        if None not in (earlier.uuid, current.uuid) and earlier.uuid != current.uuid:
            return None
        return Location.parse_or_none(earlier.location or "")

    async def places(self) -> tuple[str, tuple[Location, ...]]:
        """The head, and where files are kept at it, even of a table that may not be cleaned."""
        _, address, data = await self._current()
        known = lineage.read_identity(address, data)
        if known.location is None:
            # Version 4 may leave it out: then the metadata file's own place is all there is to know.
            return address, (Location.parse(address.rpartition("/metadata/")[0] or address),)
        return address, layout.places_of(known.location, known.properties, known.named)

    async def load_at(self, head: str, now_view: TableView) -> IcebergView | None:
        earlier = await self._read(head)
        if earlier is None or earlier.uuid != now_view.table_uuid:
            return None
        native = replace(own_view(IcebergView, now_view).native, metadata=earlier)
        try:
            return build(self, native, self._tenant_root)
        except Refused:
            return None

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[IcebergView, ExpiryPlan]:
        if not isinstance(self._source, CatalogSource):
            raise Refused(RefusalCode.PLAN_ONLY, f"{self.ref} has no catalog to commit to")
        commit = expire.ExpiryCommit(
            source=self._source,
            load=self.load,
            plan=lambda fresh: fresh.plan_expiry(policy, now),
            read=self._read,
            fence=fence,
            known=lambda: self._last_read,
        )
        after, committed = await commit.run(own_view(IcebergView, view))
        self.committed_away |= ids(committed)
        return after, committed

    async def has_other_commits(self) -> bool:
        """Has a metadata file come that nobody has looked at? Also one that no catalog of ours knows."""
        return await self.histories.have_come()

    def looked_for_other_commits_last(self) -> bool:
        return self.histories.listed_last

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:
        """Nothing: the metadata was complete before the first file went."""

    async def _current(self) -> tuple[Pointer, str, bytes]:
        for _ in range(_LOAD_ATTEMPTS):
            pointer = await self._source.pointer()
            address = _address(pointer.metadata_location)
            above, found, _ = address.rpartition("/metadata/")
            self._place = Location.parse(above) if found else None
            try:
                return pointer, address, await self._contents(address)
            except NotFound as exc:
                if await self.head() == address:
                    raise Unreadable(address, "the catalog points at it, but storage has no such object") from exc
        raise CommitConflict(f"{self.ref} receives commits faster than it can be read")

    async def verified(self, current: TableMetadata, earlier: TableMetadata) -> TableMetadata | None:
        """An earlier state frees files only if no ref was lost on the way from it; unknown frees nothing."""
        complete = await ref_history.verify(current, earlier, earlier.refs, self._read)
        # A process that died right after its commit could not look at what it was applied to.
        await ref_history.refuse_overtaken(current, earlier, self._expires, self._read)
        return earlier if complete else None

    def _expires(self, metadata: TableMetadata, at_ms: int | None) -> frozenset[int]:
        if self.planned_by is None or at_ms is None:
            return frozenset()
        return ids(retention.plan(metadata, self.planned_by, EPOCH + timedelta(milliseconds=at_ms)))

    async def _contents(self, address: str) -> bytes:
        """Of a metadata file. One whose name is given only once is not fetched twice."""
        if self._last_read[0] != address:
            data = await self.storage.read(Location.parse(address))
            if not is_unique(address.rpartition("/")[2]):
                return data
            self._last_read = (address, data)
        return self._last_read[1]

    async def _read(self, address: str) -> TableMetadata | None:
        try:
            data = await self._contents(address)
            return await asyncio.to_thread(metadata.parse, address, data)
        except LakesweepError:
            return None


def _address(text: str) -> str:
    try:
        return Location.parse(text).raw
    except ValueError as exc:
        raise Unreadable(text, f"the catalog's pointer is {exc}") from exc
