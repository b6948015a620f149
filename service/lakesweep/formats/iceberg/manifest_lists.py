"""Manifest lists, each read once per open table: they are immutable, and snapshots share most of their manifests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from lakesweep.aio import gather_bounded
from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.decode import ManifestRow, Shortfall
from lakesweep.formats.iceberg.metadata import SnapshotEntry
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.storage import Storage

_CONCURRENCY = 16
_CACHED_ROWS = 5_000_000
"""Rows are shared between lists, so a cached row costs one pointer."""


class ManifestLists:
    """A reader with a memory."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        self._lists: OrderedDict[str, tuple[ManifestRow, ...]] = OrderedDict()
        self._held = 0
        self._rows: dict[ManifestRow, ManifestRow] = {}
        self._short: dict[str, tuple[Shortfall, ...]] = {}
        """Lists that hold fewer live files than their snapshots' summaries count, whatever was read."""
        self._believed: set[str | None] = set()
        self.lengths: dict[str, int] = {}
        """Of the lists that were read, by address."""

    async def manifests_of(self, snapshot: SnapshotEntry) -> tuple[ManifestRow, ...]:
        """The manifests of one snapshot. Raises NotFound when the list is not there, Unreadable for all else."""
        if snapshot.manifest_list is None:
            return tuple(ManifestRow(path, None, 0, None, None, None) for path in snapshot.manifests)
        location = address(snapshot.manifest_list)
        known = self._lists.get(location.raw)
        if known is not None:
            self._lists.move_to_end(location.raw)
            return known
        async with self._slots:
            try:
                data = await self._storage.read(location)
            except NotFound:
                raise
            except StorageError as exc:
                raise Unreadable(location.raw, exc.why) from exc
            self.lengths[location.raw] = len(data)
            rows, short = await asyncio.to_thread(decode.decode_counted, location.raw, data, snapshot.summary)
        if short:
            self._short[location.raw] = await self._recounted(snapshot, rows, short)
        return self._remember(location.raw, rows)

    def shortfalls(self, snapshot: SnapshotEntry) -> tuple[Shortfall, ...]:
        """What the totals of a snapshot's summary count beyond its manifests, once its list was read."""
        if snapshot.manifest_list is None:
            return ()
        return self._short.get(address(snapshot.manifest_list).raw, ())

    def believe(self, snapshot: SnapshotEntry) -> None:
        """Its summary is known to count too many."""
        self._believed.add(snapshot.manifest_list)

    def is_believed(self, snapshot: SnapshotEntry) -> bool:
        return snapshot.manifest_list in self._believed

    async def _recounted(
        self, snapshot: SnapshotEntry, rows: tuple[ManifestRow, ...], short: tuple[Shortfall, ...]
    ) -> tuple[Shortfall, ...]:
        """The list's own counts may be wrong, so the entries of its manifests are counted, each of them proven whole.
        What a snapshot added itself is promised by nobody else: less than that is damage."""
        left: list[Shortfall] = []
        for one in short:
            wanted = [row for row in rows if row.content == one.content.code]
            found = sum(await gather_bounded(wanted, self._live))
            if found < decode.added(one.content, snapshot.summary):
                raise Unreadable(snapshot.manifest_list or "", one._replace(found=found).why())
            if found < one.promised:
                left.append(one._replace(found=found))
        return tuple(left)

    async def _live(self, row: ManifestRow) -> int:
        source = source_of(row, retained=True)
        if row.encrypted or (source.size_bytes is None and source.entries is None):
            raise Unreadable(row.path, "its length and entries are not recorded or not readable, so it proves nothing")
        try:
            data = await self._storage.read(source.location)
        except StorageError as exc:
            raise Unreadable(source.location.raw, exc.why) from exc
        return await asyncio.to_thread(decode.count_live, source, data)

    def _remember(self, name: str, rows: tuple[ManifestRow, ...]) -> tuple[ManifestRow, ...]:
        if len(rows) > _CACHED_ROWS:
            return rows
        shared = tuple(self._rows.setdefault(row, row) for row in rows)
        self._lists[name] = shared
        self._held += len(shared)
        while self._held > _CACHED_ROWS:
            self._held -= len(self._lists.popitem(last=False)[1])
        return shared


def source_of(row: ManifestRow, *, retained: bool) -> ReferenceSource:
    return ReferenceSource(
        location=address(row.path),
        format=FormatName.ICEBERG,
        kind=decode.MANIFEST,
        retained=retained,
        size_bytes=row.length,
        entries=row.entries,
        at_least=min(row.live, 1) if row.live is not None else None,  # deletion vectors share their files
    )


def address(text: str) -> Location:
    """Where a path of the metadata points. A relative one cannot be placed, and a file may hang on it."""
    try:
        return Location.parse(text)
    except ValueError as exc:
        raise Unreadable(text, str(exc)) from exc
