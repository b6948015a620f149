"""Which snapshots and refs lead to a file, as sentences for a person."""

from __future__ import annotations

from collections.abc import Iterable

from lakesweep.formats.iceberg import layout
from lakesweep.formats.iceberg.manifest_lists import ManifestLists
from lakesweep.formats.iceberg.metadata import SnapshotEntry, TableMetadata
from lakesweep.model.errors import StorageError, Unreadable
from lakesweep.model.location import Location

_SHOWN = 20


async def explain(lists: ManifestLists, metadata: TableMetadata, target: Location) -> tuple[str, ...]:
    """Everything in the metadata that names `target`, a manifest or a file named directly."""
    key = target.match_key
    sentences = list(_named_directly(metadata, key))
    holders = [entry for entry in metadata.snapshots if await _lists_manifest(lists, entry, key)]
    holders.sort(key=lambda entry: entry.timestamp_ms, reverse=True)
    sentences += [f"manifest of {_snapshot(metadata, entry)}" for entry in holders[:_SHOWN]]
    if len(holders) > _SHOWN:
        sentences.append(f"and of {len(holders) - _SHOWN} older snapshots")
    return tuple(sentences)


def _named_directly(metadata: TableMetadata, key: str) -> Iterable[str]:
    if _is(metadata.address, key):
        yield "it is the table's current metadata file"
    if any(_is(path, key) for path in metadata.metadata_log):
        yield "the table's metadata log names it"
    if _is(layout.metadata_directory(metadata).join(layout.VERSION_HINT).raw, key):
        yield "it is the table's version hint"
    for entry in metadata.snapshots:
        if entry.manifest_list is not None and _is(entry.manifest_list, key):
            yield f"manifest list of {_snapshot(metadata, entry)}"
    for statistics in metadata.statistics_files:
        if _is(statistics.path, key):
            yield f"statistics of snapshot {statistics.snapshot_id}"


async def _lists_manifest(lists: ManifestLists, entry: SnapshotEntry, key: str) -> bool:
    """A list that cannot be read names nothing here; whether it may be skipped is decided elsewhere."""
    try:
        return any(_is(row.path, key) for row in await lists.manifests_of(entry))
    except (StorageError, Unreadable):
        return False


def _snapshot(metadata: TableMetadata, entry: SnapshotEntry) -> str:
    pins = [str(ref) for ref in metadata.refs if ref.snapshot_id == entry.id]
    held = f", held by {' and '.join(pins)}" if pins else ""
    return f"snapshot {entry.id} of {entry.committed_at:%Y-%m-%d %H:%M} UTC{held}"


def _is(text: str, key: str) -> bool:
    place = Location.parse_or_none(text)
    return text == key or (place is not None and place.match_key == key)
