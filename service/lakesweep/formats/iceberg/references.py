"""Everything that names files, at one state of the table: what stays referenced, and what only expiring snapshots name.
Every snapshot of the metadata counts, on a branch or not. Each manifest appears once and is retained if any retained
snapshot uses it. What cannot be read of the retained side raises; of the expired side it is left out. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lakesweep import aio
from lakesweep.formats import unique_names
from lakesweep.formats.iceberg import decode, layout, lineage
from lakesweep.formats.iceberg.decode import ManifestRow
from lakesweep.formats.iceberg.manifest_lists import ManifestLists, address, source_of
from lakesweep.formats.iceberg.metadata import SnapshotEntry, StatisticsEntry, TableMetadata
from lakesweep.model.errors import StorageError, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.references import References
from lakesweep.ports.table import ExpiringFiles, ReadSources


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """Snapshots and statistics, by what becomes of them."""

    retained: tuple[SnapshotEntry, ...]
    expired: tuple[SnapshotEntry, ...]
    retained_statistics: tuple[StatisticsEntry, ...]
    expired_statistics: tuple[StatisticsEntry, ...]


async def collect(
    lists: ManifestLists, metadata: TableMetadata, expiring: Collection[int], before: TableMetadata | None
) -> References:
    """References of `metadata`. Snapshots in `expiring` give the expired side, as do those that `before` had and
    `metadata` has no more. Raises NotFound if a retained manifest list is gone, Unreadable if one is damaged."""
    split = _split(metadata, expiring, before)
    retained: dict[str, ManifestRow] = {}
    for row in _once(await aio.together(lists.manifests_of(entry) for entry in split.retained)):
        key = address(row.path).match_key
        retained[key] = _merged(retained.get(key, row), row)
    for row in retained.values():
        if row.encrypted:
            raise Unreadable(row.path, "the manifest is encrypted")
    readable, expired = await _expired(lists, split.expired)
    doubtful = lists.doubtful((*split.retained, *readable))
    for entry in split.retained:
        if entry.id in doubtful:
            raise Unreadable(entry.manifest_list or "", doubtful[entry.id])
    readable = [entry for entry in readable if entry.id not in doubtful]
    expired = {key: row for key, row in expired.items() if key not in retained}
    hint = layout.metadata_directory(metadata).join(layout.VERSION_HINT).raw
    return References(
        retained=_distinct(
            metadata.address,
            *_lists_of(split.retained),
            *(row.path for row in retained.values()),
            *(entry.path for entry in split.retained_statistics),
        ),
        tolerated=_distinct(hint, *metadata.metadata_log),
        expired=_distinct(
            *_lists_of(readable),
            *(row.path for row in expired.values()),
            *(entry.path for entry in split.expired_statistics),
        ),
        sources=(
            *(source_of(row, retained=True) for row in retained.values()),
            *(source_of(row, retained=False) for row in expired.values()),
        ),
    )


def _split(metadata: TableMetadata, expiring: Collection[int], before: TableMetadata | None) -> _Split:
    present = {entry.id for entry in metadata.snapshots}
    gone = [entry for entry in before.snapshots if entry.id not in present] if before else []
    gone_ids = {entry.id for entry in gone}
    gone_statistics = [entry for entry in before.statistics_files if entry.snapshot_id in gone_ids] if before else []
    going = set(expiring) & present
    statistics = metadata.statistics_files
    return _Split(
        retained=tuple(entry for entry in metadata.snapshots if entry.id not in going),
        expired=(*(entry for entry in metadata.snapshots if entry.id in going), *gone),
        retained_statistics=tuple(entry for entry in statistics if entry.snapshot_id not in going),
        expired_statistics=(*(entry for entry in statistics if entry.snapshot_id in going), *gone_statistics),
    )


async def _expired(
    lists: ManifestLists, snapshots: Sequence[SnapshotEntry]
) -> tuple[list[SnapshotEntry], dict[str, ManifestRow]]:
    """Snapshots whose manifests are known, and those manifests. An unreadable list stays itself, as evidence."""
    answers = await aio.together(_try(lists, entry) for entry in snapshots)
    found: dict[str, ManifestRow] = {}
    doubtful: set[str] = set()
    for row in _once(rows for rows in answers if rows is not None):
        try:
            key = address(row.path).match_key
            found[key] = _merged(found.get(key, row), row)
        except Unreadable:
            doubtful.add(row.path)
    readable = [entry for entry, rows in zip(snapshots, answers, strict=True) if rows is not None]
    return readable, {key: row for key, row in found.items() if not row.encrypted and row.path not in doubtful}


def _once(lists: Iterable[tuple[ManifestRow, ...]]) -> Iterable[ManifestRow]:
    """Lists share their rows as objects, so most of a long history falls away here at little cost."""
    return {id(row): row for rows in lists for row in rows}.values()


async def _try(lists: ManifestLists, entry: SnapshotEntry) -> tuple[ManifestRow, ...] | None:
    try:
        return await lists.manifests_of(entry)
    except (StorageError, Unreadable):
        return None


def _merged(known: ManifestRow, other: ManifestRow) -> ManifestRow:
    """One manifest as several lists record it. Older lists may record less, but none may contradict another."""
    if known is other:
        return known
    for name in ("length", "content", "added", "existing", "deleted"):
        mine, theirs = getattr(known, name), getattr(other, name)
        if None not in (mine, theirs) and mine != theirs:
            raise Unreadable(known.path, f"manifest lists contradict each other on its {name}: {mine} and {theirs}")
    return known._replace(
        length=other.length if known.length is None else known.length,
        added=other.added if known.added is None else known.added,
        existing=other.existing if known.existing is None else known.existing,
        deleted=other.deleted if known.deleted is None else known.deleted,
        encrypted=known.encrypted or other.encrypted,
    )


def _lists_of(snapshots: Iterable[SnapshotEntry]) -> list[str]:
    return [entry.manifest_list for entry in snapshots if entry.manifest_list is not None]


def _distinct(*paths: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


async def expiring_files(lists: ManifestLists, found: References, read: ReadSources) -> ExpiringFiles:
    """Manifest lists, manifests and what they name. A manifest that cannot be read is left out, with its files."""
    expiring = [source for source in found.sources if not source.retained]
    plain = {source.location: source for source in expiring}
    sizes: dict[str, int | None] = {}
    for path in found.expired:
        place = Location.parse_or_none(path)
        sizes[path] = plain[place].size_bytes if place in plain else lists.lengths.get(place.raw if place else path)
    names: list[str] = []
    covered: set[str] = set()
    async for source, batch in read([decode.with_sizes(source) for source in expiring]):
        covered.add(plain[source.location].cache_key)
        paths = batch.column("path").to_pylist()
        names += paths
        for path, size in zip(paths, batch.column("size_bytes").to_pylist(), strict=True):
            sizes[path] = size if sizes.get(path, size) == size else None
    return ExpiringFiles(shortlist=unique_names.shortlist(sizes), sources=frozenset(covered), names=tuple(names))


_SHOWN = 20


async def explain(lists: ManifestLists, metadata: TableMetadata, target: Location) -> tuple[str, ...]:
    key = target.match_key
    sentences = list(_named_directly(metadata, key))
    holders = [entry for entry in metadata.snapshots if await _lists_manifest(lists, entry, key)]
    holders.sort(key=lambda entry: entry.timestamp_ms, reverse=True)
    sentences += [f"manifest of {_snapshot(metadata, entry)}" for entry in holders[:_SHOWN]]
    if len(holders) > _SHOWN:
        sentences.append(f"and of {len(holders) - _SHOWN} older snapshots")
    return tuple(sentences)


def _named_directly(metadata: TableMetadata, key: str) -> Iterable[str]:
    if lineage.key(metadata.address) == key:
        yield "it is the table's current metadata file"
    if any(lineage.key(path) == key for path in metadata.metadata_log):
        yield "the table's metadata log names it"
    if lineage.key(layout.metadata_directory(metadata).join(layout.VERSION_HINT).raw) == key:
        yield "it is the table's version hint"
    for entry in metadata.snapshots:
        if entry.manifest_list is not None and lineage.key(entry.manifest_list) == key:
            yield f"manifest list of {_snapshot(metadata, entry)}"
    for statistics in metadata.statistics_files:
        if lineage.key(statistics.path) == key:
            yield f"statistics of snapshot {statistics.snapshot_id}"


async def _lists_manifest(lists: ManifestLists, entry: SnapshotEntry, key: str) -> bool:
    """A list that cannot be read names nothing here; whether it may be skipped is decided elsewhere."""
    try:
        return any(lineage.key(row.path) == key for row in await lists.manifests_of(entry))
    except (StorageError, Unreadable):
        return False


def _snapshot(metadata: TableMetadata, entry: SnapshotEntry) -> str:
    pins = [str(ref) for ref in metadata.refs if ref.snapshot_id == entry.id]
    held = f", held by {' and '.join(pins)}" if pins else ""
    return f"snapshot {entry.id} of {entry.committed_at:%Y-%m-%d %H:%M} UTC{held}"
