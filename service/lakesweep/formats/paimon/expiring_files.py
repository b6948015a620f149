"""Where the files are that expiring snapshots name, and which directories may be empty without them. Reads only. A
manifest gives names, partitions and buckets. The address that follows from them is only a guess until storage has
answered for it: a file that is not there is no candidate and waits for a listing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from lakesweep.formats import unique_names
from lakesweep.formats.paimon import decode, manifests, names
from lakesweep.formats.paimon.binaryrow import decode_row
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.errors import LakesweepError
from lakesweep.ports.references import References
from lakesweep.ports.table import ExpiringFiles

if TYPE_CHECKING:
    from lakesweep.formats.paimon.table import PaimonTable

_log = structlog.get_logger(__name__)
_POSTPONED = -2
"""The bucket of files that have not been given one yet."""
_COLUMNS = ("kind", "partition", "bucket", "name", "extra", "external")


async def collect(
    table: PaimonTable, state: PaimonState, going: Sequence[PaimonSnapshot], found: References
) -> ExpiringFiles:
    """Addresses of everything that `found` calls expired. What cannot be read is left out."""
    addresses = {path for path in found.expired if "/" in path}
    bare = frozenset(path for path in found.expired if "/" not in path)
    whole = {source.location for source in found.sources if not source.retained and source.kind == decode.MANIFEST}
    for meta in await table.reference_reader.going_manifests(going):
        is_whole = table.files.manifest(meta.name) in whole
        if not is_whole and not bare:
            continue
        try:
            rows = (await table.lists.table(meta, _COLUMNS)).to_pylist()
            wanted = [
                row
                for row in rows
                if row["kind"] == manifests.ADD and (is_whole or not bare.isdisjoint(decode.stored_names(row)))
            ]
            addresses.update(_addresses(table.files, state, wanted))
        except (LakesweepError, ValueError) as exc:
            _log.warning("expired_manifest_skipped", manifest=meta.name, why=str(exc))
    for source in found.sources:
        if not source.retained and source.kind == decode.INDEX:
            addresses.update(await _index_files(table, source.location.name))
    return ExpiringFiles(shortlist=unique_names.shortlist(dict.fromkeys(addresses)))


def _addresses(files: TableFiles, state: PaimonState, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    buckets: dict[tuple[bytes, int], str] = {}
    for row in rows:
        if row["external"]:
            place = row["external"].rpartition("/")[0]
        else:
            key = (row["partition"], row["bucket"])
            if key not in buckets:
                buckets[key] = bucket_levels(files, state, *key)[-1]
            place = buckets[key]
        yield from (f"{place}/{name}" for name in decode.stored_names(row))


async def _index_files(table: PaimonTable, manifest: str) -> list[str]:
    try:
        entries = await table.lists.read_index(manifest)
    except LakesweepError as exc:
        _log.warning("expired_manifest_skipped", manifest=manifest, why=str(exc))
        return []
    return [entry.document.get("_EXTERNAL_PATH") or table.files.at("index", entry.name).raw for entry in entries]


async def directories_of(
    files: TableFiles, lists: ListReader, state: PaimonState, metas: Iterable[manifests.ManifestMeta]
) -> tuple[str, ...]:
    """Raw addresses of the directories that these manifests name files in, and of the partition levels above them.
    A manifest that cannot be read is passed over: an empty directory left behind costs nothing."""
    found: dict[str, None] = {}
    for meta in metas:
        try:
            table = await lists.table(meta, ("partition", "bucket"))
            for pair in table.group_by(["partition", "bucket"]).aggregate([]).to_pylist():
                found.update(dict.fromkeys(bucket_levels(files, state, pair["partition"], pair["bucket"])))
        except (LakesweepError, ValueError) as exc:
            _log.warning("expired_manifest_skipped", manifest=meta.name, why=str(exc))
    return tuple(found)


def bucket_levels(files: TableFiles, state: PaimonState, partition: bytes, bucket: int) -> list[str]:
    """Every partition level above a bucket's directory and last that directory itself, but not where the data begins.
    Raises ValueError for a partition that cannot be read."""
    schema, options = state.log.schemas[-1], state.options
    path = names.partition_path(
        schema.partition_keys,
        decode_row(partition, [key.type for key in schema.partition_keys]),
        default=options.default_partition,
        legacy=options.legacy_partition_names,
    )
    directory = options.data_directory or ""
    start = files.at(directory) if directory.strip("/") else files.location
    levels = path.split("/") if path else []
    places = [start.join(*levels[:depth]) for depth in range(1, len(levels) + 1)]
    places.append(start.join(*levels, "bucket-postpone" if bucket == _POSTPONED else f"bucket-{bucket}"))
    return [place.raw for place in places]
