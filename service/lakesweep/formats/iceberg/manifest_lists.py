"""Manifest lists, each read once per open table: they are immutable, and snapshots share most of their manifests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable

import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads
from lakesweep.formats.iceberg import decode
from lakesweep.formats.iceberg.decode import ManifestRow, Shortfall
from lakesweep.formats.iceberg.metadata import SnapshotEntry
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource
from lakesweep.ports.storage import Storage

log = structlog.get_logger()

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
        """Lists whose snapshots' summaries are known to count too many."""
        self.lengths: dict[str, int] = {}
        """Of the lists that were read, by address."""

    async def manifests_of(self, snapshot: SnapshotEntry) -> tuple[ManifestRow, ...]:
        """The manifests of one snapshot. Raises NotFound when the list is not there, Unreadable for all else."""
        if snapshot.manifest_list is None:
            return tuple(map(ManifestRow, snapshot.manifests))
        location = address(snapshot.manifest_list)
        known = self._lists.get(location.raw)
        if known is not None:
            self._lists.move_to_end(location.raw)
            return known
        async with self._slots:
            with reads.must_answer(location.raw, may_be_missing=True):
                data = await self._storage.read(location)
            self.lengths[location.raw] = len(data)
            rows, short = await asyncio.to_thread(decode.decode_counted, location.raw, data, snapshot.summary)
        if short:
            self._short[location.raw] = await self._recounted(snapshot, rows, short)
        return self._remember(location.raw, rows)

    def doubtful(self, snapshots: Iterable[SnapshotEntry]) -> dict[int, str]:
        """Snapshots whose lists may be cut, and why, of those whose lists were read. Writers add to the totals of the
        snapshot before, so a single miscount (a path that was added twice and deleted once) stays in all that follow. A
        list that was cut is short by itself. So a shortfall is believed to be a miscount if the snapshot before or
        after it has the very same, in another list; all manifests of both were read and are whole. Miscounts are known
        as such from then on, also when the snapshot that showed it is gone."""
        known = {entry.id: entry for entry in snapshots}
        beside: dict[int, list[SnapshotEntry]] = defaultdict(list)
        for entry in known.values():
            if entry.parent in known:
                beside[entry.id].append(known[entry.parent])
                beside[entry.parent].append(entry)
        found: dict[int, str] = {}
        for entry in known.values():
            if not (short := self._shortfalls(entry)):
                continue
            why = "; ".join(one.why() for one in short)
            others = [one for one in beside[entry.id] if one.manifest_list != entry.manifest_list]
            if any(_excess(self._shortfalls(one)) == _excess(short) for one in others):
                self._believed.add(entry.manifest_list)
                log.warning("summary_counts_too_many", manifest_list=entry.manifest_list, why=why)
            elif entry.manifest_list not in self._believed:
                found[entry.id] = f"{why}, and no snapshot before or after it has the same difference"
        return found

    def _shortfalls(self, snapshot: SnapshotEntry) -> tuple[Shortfall, ...]:
        """What the totals of a snapshot's summary count beyond its manifests, once its list was read."""
        if snapshot.manifest_list is None:
            return ()
        return self._short.get(address(snapshot.manifest_list).raw, ())

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
            raise Unreadable(row.path, "its length and entries are not recorded or not readable: nothing verifies it")
        with reads.must_answer(source.location.raw):
            data = await self._storage.read(source.location)
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


def _excess(short: Iterable[Shortfall]) -> dict[int, int]:
    return {one.content.code: one.promised - one.found for one in short}


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
