"""Manifest lists, each read once per open table: they are immutable, and snapshots share most of their manifests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from lakesweep.cleanup.storage_ports import Storage
from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.decode import ManifestRow
from lakesweep.formats.iceberg.metadata import SnapshotEntry
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.location import Location

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
            rows = await asyncio.to_thread(decode.decode_list, location.raw, data, snapshot.summary)
        return self._remember(location.raw, rows)

    def _remember(self, name: str, rows: tuple[ManifestRow, ...]) -> tuple[ManifestRow, ...]:
        if len(rows) > _CACHED_ROWS:
            return rows
        shared = tuple(self._rows.setdefault(row, row) for row in rows)
        self._lists[name] = shared
        self._held += len(shared)
        while self._held > _CACHED_ROWS:
            self._held -= len(self._lists.popitem(last=False)[1])
        return shared


def address(text: str) -> Location:
    """Where a path of the metadata points. A relative one cannot be placed, and a file may hang on it."""
    try:
        return Location.parse(text)
    except ValueError as exc:
        raise Unreadable(text, str(exc)) from exc
