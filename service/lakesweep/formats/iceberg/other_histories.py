"""Metadata files of this table that its own line does not know, and what they keep. A second catalog may take the table
over while a cycle runs, and its first commit may look like one that lost a race against ours. So whatever such a file
names stays: of one that came since the plan was made, always; of one that was there before, for a week, in which
another history goes on and is then known by that. This only keeps; `foreign_tables` judges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads, streams
from lakesweep.formats.iceberg import decode, foreign_tables, layout, lineage, metadata
from lakesweep.formats.iceberg.manifest_lists import ManifestLists, address, source_of
from lakesweep.formats.iceberg.metadata import METADATA_SUFFIXES, SnapshotEntry, TableMetadata
from lakesweep.model.errors import NotFound, Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.table import FormatName
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.storage import Storage, moments

log = structlog.get_logger()

KEPT_FOR = timedelta(days=7)
"""How long a file that seems to have lost a race keeps what it names: a history that is alive commits again."""
_LONG_AGO, _UNKNOWN = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""A file of unknown age is not deleted, so it counts as newer than all others."""
_SHOWS_THE_PAST = (
    "a metadata file of a lower version was written later: that one is deleted first, and this one shows whose it is"
)
_QUICK_SECONDS = 0.5
_PAUSE = 4
"""A listing that takes longer than that is not repeated before so many times its own length have passed."""


class Stamp(NamedTuple):
    """A stored file as it was listed: one that is written anew is another."""

    path: str
    size_bytes: int
    modified_at: datetime | None
    etag: str | None


Listed = Mapping[Location, tuple[Stamp, ...]]
"""Metadata files by the place that was listed."""


def stamps(page: pa.RecordBatch) -> list[Stamp]:
    # Before every batch of deletes a directory is listed where few of the files are metadata files.
    found = page.filter(reduce(pc.or_, (pc.ends_with(page.column("path"), suffix) for suffix in METADATA_SUFFIXES)))
    columns = (found.column(name).to_pylist() for name in ("path", "size_bytes"))
    return list(map(Stamp, *columns, moments(found.column("modified_at")), found.column("etag").to_pylist()))


def out_of_order(stamps: Iterable[Stamp], head: str, since: datetime) -> tuple[str, ...]:
    """Files before the head that would be deleted while one of a lower version stays, because that one was written
    since: restored, or copied with the table. They are all that shows that it is part of this table's past. So are the
    files between them and the head."""
    limit = lineage.version(head)
    numbered = [(lineage.version(one.path), one.modified_at or _UNKNOWN, one.path) for one in stamps]
    found: list[str] = []
    newest = _LONG_AGO
    for _, at, path in sorted(one for one in numbered if 0 <= one[0] < limit):
        if found or at < newest:
            found.append(path)
        if at > since:
            newest = max(newest, at)
    return tuple(found)


class OtherHistories:
    """Those of one open table, looked for again and again while it is cleaned."""

    def __init__(self, storage: Storage, lists: ManifestLists) -> None:
        self._storage = storage
        self._lists = lists
        self._judged: frozenset[str] | None = None
        self._known: frozenset[Stamp] = frozenset()
        self._places: tuple[Location, ...] = ()
        self._pause_until = 0.0
        self._since: datetime | None = None
        self._parsed: dict[str, TableMetadata] = {}
        self._out_of_order: tuple[str, ...] = ()
        self.found: tuple[str, ...] = ()
        """Addresses of those that keep something, and of those out of order, as of the last look."""
        self.listed_last = False
        """Was listing the last thing that the last look did? Not if it then had something to read."""

    def leave_to_check(self, paths: Iterable[str], own: TableMetadata) -> None:
        """These are looked at by the check of the plan. What is not among them, and not in the own log, came later."""
        self._judged = (self._judged or frozenset()) | frozenset(paths)
        line = {own.address, *own.metadata_log}
        self._known = frozenset(stamp for stamp in self._known if self._is_judged(stamp) or stamp.path in line)

    async def listed(self, own: TableMetadata) -> list[str]:
        """All metadata files where the table's metadata is and goes."""
        return [stamp.path for stamp in await self._list(layout.current_metadata_directories(own))]

    async def have_come(self) -> bool:
        """Is a metadata file there that was not looked at? Called right before each request to delete."""
        if time.monotonic() < self._pause_until:
            return False
        return not self._known.issuperset(await self._list(self._places))

    async def keep(
        self,
        references: References,
        own: TableMetadata,
        roots: Sequence[Location],
        listed: Listed,
        wait: timedelta,
    ) -> References:
        """The table's references, with those of other histories, whose files may be absent. `listed` is what was listed
        when the table was loaded. An unreferenced file stays no longer than `wait` after it was written."""
        others = await self._find(own, roots, listed, wait)
        self.found = (*(other.address for other in others), *self._out_of_order)
        if not self.found:
            return references
        paths = [*self._out_of_order]
        sources: dict[str, ReferenceSource] = {}
        own_keys = {source.location.match_key for source in references.sources if source.retained}
        for other in others:
            paths += [other.address, *other.metadata_log, *(one.path for one in other.statistics_files)]
            for entry in other.snapshots:
                paths += await self._add(entry, sources, own_keys)
        left = [source for source in references.sources if source.location.match_key not in sources]
        tolerated = (*references.tolerated, *dict.fromkeys(paths))
        return replace(references, sources=(*left, *sources.values()), tolerated=tolerated)

    def explain(self, target: Location) -> tuple[str, ...]:
        return (_SHOWS_THE_PAST,) if target.match_key in map(lineage.key, self._out_of_order) else ()

    async def _add(self, entry: SnapshotEntry, sources: dict[str, ReferenceSource], own_keys: set[str]) -> list[str]:
        """Add the manifests that are left of a snapshot to the sources, by their match keys. Returns what it names
        directly. What is gone nobody can keep."""
        try:
            rows = await self._lists.manifests_of(entry)
        except NotFound:
            return []
        known = own_keys | sources.keys()
        new = [row for row in rows if address(row.path).match_key not in known]
        for row, present in zip(new, await gather_bounded(new, lambda one: self._is_there(one.path)), strict=True):
            if row.encrypted:
                raise Unreadable(row.path, "the manifest is encrypted")
            if present:
                source = source_of(row, retained=True)
                sources[source.location.match_key] = decode.may_be_absent(source)
        return [path for path in (entry.manifest_list, *(row.path for row in rows)) if path]

    async def _is_there(self, path: str) -> bool:
        with reads.must_answer(path, "another history of this table may need it, but storage says: "):
            return await reads.is_there(self._storage, address(path))

    async def _find(
        self, own: TableMetadata, roots: Sequence[Location], listed: Listed, wait: timedelta
    ) -> list[TableMetadata]:
        self._places, self.listed_last = layout.current_metadata_directories(own), False
        is_listed = all(place in listed for place in self._places)
        try:
            present = (
                list({one.path: one for place in self._places for one in listed[place]}.values())
                if is_listed
                else await self._list(self._places)
            )
        except Unreadable:
            if self._judged is not None:
                raise
            return []  # a plan is shown all the same: its check asks for the same places, and refuses
        line = {own.address, *own.metadata_log}
        beside = [stamp for stamp in present if stamp.path not in line]
        new = {stamp.path for stamp in beside if not self._is_judged(stamp)} if self._judged is not None else set()
        young = await self._young(beside)
        if self._since is not None:
            self._out_of_order = out_of_order(beside, own.address, self._since + KEPT_FOR - wait)
        self.listed_last = not (is_listed or new or young)
        others, owner = await foreign_tables.Search(self._storage, roots, own).beside(sorted(new | young), new)
        if owner is not None:
            raise Refused(RefusalCode.FOREIGN_TABLE, owner)
        found = [await self._parse(one) for one in others]
        self._known = frozenset(present)
        return [other for other in found if other is not None]

    def _is_judged(self, stamp: Stamp) -> bool:
        return self._judged is None or stamp.path in self._judged

    async def _young(self, stamps: Sequence[Stamp]) -> set[str]:
        if not stamps:
            return set()
        if self._since is None:
            self._since = await self._storage.now() - KEPT_FOR
        return {one.path for one in stamps if one.modified_at is None or one.modified_at > self._since}

    async def _parse(self, location: Location) -> TableMetadata | None:
        if location.raw not in self._parsed:
            trouble = "it may belong to another history, but storage says: "
            data = await reads.read_or_none(self._storage, location, trouble)
            if data is None:
                return None
            self._parsed[location.raw] = await asyncio.to_thread(metadata.parse, location.raw, data)
        return self._parsed[location.raw]

    async def _list(self, places: Iterable[Location]) -> list[Stamp]:
        begun = time.monotonic()
        found: dict[str, Stamp] = {}
        for place in places:
            with reads.must_answer(place.raw, "another history's metadata may be there, but storage says: "):
                found |= {stamp.path: stamp for stamp in await reads.collect(self._storage, place, stamps)}
        took = time.monotonic() - begun
        self._pause_until = time.monotonic() + _PAUSE * took if took > _QUICK_SECONDS else 0.0
        return list(found.values())


class PendingManifests:
    """Manifests that Flink has written and not yet committed: only a job's own state knows them, and what they list.
    While a job is down, its last one may be the only trace of it: before the first commit no snapshot is. Looked for
    once: what is written later is young by any rule."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._found: tuple[Location, ...] | None = None
        self._listed: dict[Location, tuple[str, ...]] = {}

    async def find(self, metadata: TableMetadata, tenant_root: Location) -> tuple[str | None, Listed]:
        """List the places where they lie. Returns the stream that one of them is named after, and the metadata files
        that were listed with them, if this call listed anything."""
        listed: dict[Location, tuple[Stamp, ...]] = {}
        if self._found is None:
            found: list[Location] = []
            for place in layout.pending_places(metadata, tenant_root):
                beside: dict[str, Stamp] = {}
                async with aclosing(self._storage.list(place)) as pages:
                    async for page in pages:
                        found += [Location.parse(path) for path in page.column("path").to_pylist() if _stream(path)]
                        beside |= {stamp.path: stamp for stamp in stamps(page)}
                listed[place] = tuple(beside.values())
            self._found = tuple(found)
        return (_stream(self._found[0].raw) if self._found else None), listed

    async def named(self) -> tuple[str, ...]:
        """What they list. It stays for as long as they do themselves."""
        wanted = [one for one in self._found or () if one not in self._listed]
        for one, paths in zip(wanted, await gather_bounded(wanted, self._read), strict=True):
            self._listed[one] = paths
        return tuple(dict.fromkeys(path for paths in self._listed.values() for path in paths))

    async def explain(self, target: Location) -> tuple[str, ...]:
        await self.named()
        key = target.match_key
        return tuple(
            f"{one} lists it: {_stream(one.raw)} wrote that manifest and may still commit it"
            for one, paths in self._listed.items()
            if any(lineage.key(path) == key for path in paths)
        )

    async def _read(self, manifest: Location) -> tuple[str, ...]:
        """Nothing for one that is gone, or that is not whole: its job cannot go on from it either."""
        source = ReferenceSource(location=manifest, format=FormatName.ICEBERG, kind=decode.MANIFEST, retained=True)
        try:
            data = await self._storage.read(manifest)
            rows = await asyncio.to_thread(decode.decode, source, data)
        except NotFound:
            return ()
        except Unreadable as exc:
            log.warning("pending_manifest_unreadable", manifest=manifest.raw, why=exc.why)
            return ()
        return tuple(rows.column("path").to_pylist())


def _stream(path: str) -> str | None:
    return streams.pending_manifest(path.rpartition("/")[2])
