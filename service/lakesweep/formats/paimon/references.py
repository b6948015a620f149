"""What names files at one state: direct names, manifests to be decoded, and names proven dead. Reads only. Failing to
read a part of something that stays raises; failing to read what only expires shrinks the work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats.paimon import decode
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import DECODERS, ListReader
from lakesweep.formats.paimon.manifests import ManifestMeta
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, Role
from lakesweep.formats.paimon.state import PaimonState, Presence, Root, retained_roots
from lakesweep.model.errors import LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.storage import stat_or_none

_log = structlog.get_logger(__name__)

Metas = tuple[ManifestMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The manifests of one root, by what they are needed for."""

    snapshot: PaimonSnapshot
    itself: bool = False
    whole: bool = False
    """All of it is needed, index and statistics too."""
    data: Metas = ()
    """Base, then delta, in order."""
    changelog: Metas = ()
    optional_changelog: Metas = ()
    diff: Metas = ()
    """A delta that streams read: what it adds and what it deletes."""
    shadow: Metas = ()
    """The base of a changelog: kept if there, its files are not."""
    lists: tuple[str, ...] = ()
    optional_lists: tuple[str, ...] = ()


@dataclass(slots=True)
class _Gathered:
    """What the walk over all roots adds up to. Dicts, because order is stable and nothing counts twice."""

    retained: dict[str, None] = field(default_factory=dict)
    tolerated: dict[str, None] = field(default_factory=dict)
    expired: dict[str, None] = field(default_factory=dict)
    sources: dict[tuple[str, str], ReferenceSource] = field(default_factory=dict)
    done: dict[bool, set[tuple[str, tuple[str, ...]]]] = field(default_factory=lambda: {True: set(), False: set()})
    """Manifests (with their sidecars) that were added in full, as retained or as expired: snapshots share most."""


class ReferenceReader:
    """Reads one table's references. What it learnt of immutable manifests serves the next time as well."""

    def __init__(self, files: TableFiles, lists: ListReader) -> None:
        self._files = files
        self._lists = lists
        self._suspects: frozenset[str] = frozenset()
        self._changes: dict[str, tuple[decode.Change, ...]] = {}

    async def collect(self, state: PaimonState, expiring: Sequence[PaimonSnapshot], *, decoupled: bool) -> References:
        """Everything that names files. Raises lists.Vanished when the table should be looked at again."""
        kept = await gather_bounded(retained_roots(state, expiring, decoupled=decoupled), self._kept_parts)
        going = await gather_bounded(expiring, self._going_parts)
        gathered = _Gathered()
        for parts in kept:
            self._add_retained(gathered, parts)
        for parts in going:
            self._add_direct(gathered, parts, gathered.expired, retained=False)
        await self._measure_indexes(gathered)
        released = await self._released(kept)
        # No reader of snapshots needs it, and others may have deleted it; but streams read it while it exists.
        streamed = decode.mentioned_names((meta.name for parts in kept for meta in parts.diff), self._changes)
        gathered.tolerated.update(dict.fromkeys(sorted(released & streamed)))
        spelled = decode.spelled_names((meta.name for parts in going for meta in parts.data), self._changes)
        named = gathered.retained.keys() | gathered.tolerated.keys()
        return References(
            retained=tuple(gathered.retained),
            expired=tuple(name for name in (*gathered.expired, *sorted(released & spelled)) if name not in named),
            sources=tuple(gathered.sources.values()),
            released=tuple(sorted(released)),
            tolerated=tuple(gathered.tolerated),
        )

    async def _measure_indexes(self, gathered: _Gathered) -> None:
        """Nothing records their length, so the store is asked: one cut behind a block names fewer files."""
        indexes = {key: one for key, one in gathered.sources.items() if one.kind == decode.INDEX and one.retained}
        for key, measured in zip(indexes, await gather_bounded(indexes.values(), self._measured), strict=True):
            gathered.sources[key] = measured

    async def _measured(self, source: ReferenceSource) -> ReferenceSource:
        stored = await stat_or_none(self._files.storage, source.location)
        return replace(source, size_bytes=stored.size_bytes) if stored else source  # if it is gone, its reader says so

    async def leads(self, root: Root, source: Location) -> bool:
        parts, name = await self._kept_parts(root), source.name
        metas = (*parts.data, *parts.changelog, *parts.optional_changelog, *parts.diff, *parts.shadow)
        direct = {*parts.lists, *parts.optional_lists, *(meta.name for meta in metas)}
        if parts.whole:
            direct |= {root.snapshot.index_manifest or "", root.snapshot.statistics or ""}
        return name in direct or source == root.snapshot.location

    async def going_manifests(self, expiring: Sequence[PaimonSnapshot]) -> tuple[ManifestMeta, ...]:
        going = await gather_bounded(expiring, self._going_parts)
        return tuple({meta.name: meta for parts in going for meta in (*parts.data, *parts.changelog)}.values())

    async def _kept_parts(self, root: Root) -> _Parts:
        snapshot = root.snapshot
        data: Metas = ()
        changelog: Metas = ()
        required: list[str] = []
        optional: list[str] = []
        if root.data:
            data = await self._lists.manifests_of(snapshot)
            required += [snapshot.base_list, snapshot.delta_list]
        if snapshot.changelog_list and root.changelog is Presence.REQUIRED:
            changelog = await self._lists.manifest_list(snapshot, snapshot.changelog_list)
            required.append(snapshot.changelog_list)
        loose = snapshot.changelog_list if root.changelog is Presence.IF_THERE else None
        optional += [loose] if loose else []
        optional += [snapshot.delta_list, snapshot.base_list] if root.diff else []
        return _Parts(
            snapshot=snapshot,
            itself=root.itself,
            whole=root.data,
            data=data,
            changelog=changelog,
            optional_changelog=await self._lists.there(await self._lists.list_if_there(snapshot, loose)),
            diff=await self._lists.there(
                await self._lists.list_if_there(snapshot, snapshot.delta_list if root.diff else None)
            ),
            shadow=await self._lists.list_if_there(snapshot, snapshot.base_list if root.diff else None),
            lists=tuple(required),
            optional_lists=tuple(optional),
        )

    async def _going_parts(self, snapshot: PaimonSnapshot) -> _Parts:
        """As much as can still be read of something that expires."""
        lists = tuple(filter(None, (snapshot.base_list, snapshot.delta_list, snapshot.changelog_list)))
        found: dict[str, Metas] = {}
        for name in lists:
            try:
                found[name] = await self._lists.list_if_there(snapshot, name)
            except LakesweepError as exc:
                _log.warning("expired_list_skipped", list=name, why=str(exc))
        return _Parts(
            snapshot=snapshot,
            itself=True,
            whole=snapshot.role is Role.SNAPSHOT,
            data=(*found.get(snapshot.base_list, ()), *found.get(snapshot.delta_list, ())),
            changelog=found.get(snapshot.changelog_list or "", ()),
            lists=lists,
        )

    def _add_retained(self, gathered: _Gathered, parts: _Parts) -> None:
        self._add_direct(gathered, parts, gathered.retained, retained=True)
        gathered.tolerated.update(dict.fromkeys(self._files.manifest(name).raw for name in parts.optional_lists))
        optional = ((parts.optional_changelog, decode.IF_THERE), (parts.diff, decode.DIFF))
        for metas, kind in optional:
            for meta in metas:
                self._add_source(gathered, meta, kind, retained=True)
        for meta in (*parts.optional_changelog, *parts.diff, *parts.shadow):
            gathered.tolerated.update(dict.fromkeys(self._own_names(meta)))

    def _add_direct(self, gathered: _Gathered, parts: _Parts, names: dict[str, None], *, retained: bool) -> None:
        snapshot = parts.snapshot
        if parts.itself:
            names[snapshot.location.raw] = None
        names.update(dict.fromkeys(self._files.manifest(name).raw for name in parts.lists))
        done = gathered.done[retained]
        for meta in (*parts.data, *parts.changelog):
            if (meta.name, meta.sidecars) in done:
                continue
            done.add((meta.name, meta.sidecars))
            names.update(dict.fromkeys(self._own_names(meta)))
            self._add_source(gathered, meta, decode.MANIFEST, retained=retained)
        if parts.whole and snapshot.statistics:
            names[self._files.at("statistics", snapshot.statistics).raw] = None
        if parts.whole and snapshot.index_manifest:
            location = self._files.manifest(snapshot.index_manifest)
            names[location.raw] = None
            key = (snapshot.index_manifest, decode.INDEX)
            gathered.sources.setdefault(key, _source(location, decode.INDEX, retained=retained))

    def _own_names(self, meta: ManifestMeta) -> list[str]:
        return [self._files.manifest(name).raw for name in (meta.name, *meta.sidecars)]

    def _add_source(self, gathered: _Gathered, meta: ManifestMeta, kind: str, *, retained: bool) -> None:
        """Each manifest once for each reason to read it. Retained roots come first, and in full covers additions."""
        full = gathered.sources.get((meta.name, decode.MANIFEST))
        covered = kind != decode.DIFF or not meta.deleted
        if full is not None and full.retained and covered:
            return
        if kind == decode.MANIFEST and retained:
            gathered.sources.pop((meta.name, decode.IF_THERE), None)
        source = _source(self._files.manifest(meta.name), kind, retained=retained, meta=meta)
        gathered.sources.setdefault((meta.name, kind), source)

    async def _released(self, kept: Sequence[_Parts]) -> set[str]:
        """Names that retained manifests still add although nothing retained has them live."""
        metas = {
            meta.name: meta
            for parts in kept
            for meta in (*parts.data, *parts.changelog, *parts.optional_changelog, *parts.diff)
        }
        bearing = {meta.name: meta for parts in _first_of_runs(kept) for meta in parts.data if meta.deleted}
        tables = dict(
            zip(bearing, await gather_bounded(bearing.values(), self._changes_table, limit=DECODERS), strict=True)
        )
        suspects = frozenset(name for table in tables.values() for name in decode.mentioned_in_deletes(table))
        if suspects != self._suspects:
            self._suspects, self._changes = suspects, {}
        if not suspects:
            return set()
        wanted = pa.array(sorted(suspects), pa.string())

        async def concerning(meta: ManifestMeta) -> tuple[decode.Change, ...]:
            table = tables[meta.name] if meta.name in tables else await self._changes_table(meta)
            return await asyncio.to_thread(decode.concerning, table, wanted)

        unread = [meta for name, meta in metas.items() if name not in self._changes]
        found = await gather_bounded(unread, concerning, limit=DECODERS)
        self._changes.update(zip((meta.name for meta in unread), found, strict=True))
        live = decode.live_names(
            ([meta.name for meta in parts.data] for parts in kept if parts.data),
            (meta.name for parts in kept for meta in (*parts.changelog, *parts.optional_changelog)),
            self._changes,
        )
        return decode.spelled_names((meta.name for parts in kept for meta in parts.data), self._changes) - live

    async def _changes_table(self, meta: ManifestMeta) -> pa.Table:
        return await self._lists.table(meta, decode.COLUMNS)


def _source(location: Location, kind: str, *, retained: bool, meta: ManifestMeta | None = None) -> ReferenceSource:
    return ReferenceSource(
        location=location,
        format=FormatName.PAIMON,
        kind=kind,
        retained=retained,
        size_bytes=meta.size_bytes if meta else None,
        entries=meta.entries if meta else None,
        at_least=meta.added if meta and kind != decode.DIFF else None,
    )


def _first_of_runs(kept: Sequence[_Parts]) -> Iterator[_Parts]:
    """Where history begins: what a later snapshot of the same run deletes was live in the one before it."""
    before: PaimonSnapshot | None = None
    for parts in kept:
        snapshot = parts.snapshot
        if not parts.data:
            continue
        follows = (
            before is not None
            and before.role is snapshot.role is Role.SNAPSHOT
            and (before.branch, before.id + 1) == (snapshot.branch, snapshot.id)
        )
        if not follows:
            yield parts
        before = snapshot
