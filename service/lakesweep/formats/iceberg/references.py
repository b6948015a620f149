"""Everything that names files, at one state of the table: what stays referenced, and what only expiring snapshots name.

Every snapshot of the metadata counts, on a branch or not. Each manifest appears once, however many snapshots share
it, and is retained if any retained snapshot uses it. What cannot be read of the retained side raises; what cannot
be read of the expired side is left out, which only shrinks the work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lakesweep import aio
from lakesweep.formats.iceberg import layout, summary_totals
from lakesweep.formats.iceberg.decode import ManifestRow
from lakesweep.formats.iceberg.manifest_lists import ManifestLists, address, source_of
from lakesweep.formats.iceberg.metadata import SnapshotEntry, StatisticsEntry, TableMetadata
from lakesweep.model.errors import StorageError, Unreadable
from lakesweep.ports.references import References


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
    for row in _once(await _all(lists, split.retained)):
        key = address(row.path).match_key
        retained[key] = _merged(retained.get(key, row), row)
    for row in retained.values():
        if row.encrypted:
            raise Unreadable(row.path, "the manifest is encrypted")
    readable, expired = await _expired(lists, split.expired)
    doubtful = summary_totals.doubtful(lists, (*split.retained, *readable))
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


async def _all(lists: ManifestLists, snapshots: Sequence[SnapshotEntry]) -> list[tuple[ManifestRow, ...]]:
    """The first failure stops the others: nothing can be concluded without every retained list."""
    return await aio.together(lists.manifests_of(entry) for entry in snapshots)


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
