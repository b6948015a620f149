"""Where the files are that expiring snapshots name. Reads only.

A manifest gives names, partitions and buckets. The address that follows from them is only a guess until storage has
answered for it: a file that is not there is no candidate and waits for a listing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from lakesweep.formats import unique_names
from lakesweep.formats.paimon import decode, manifests, names
from lakesweep.formats.paimon.directories import bucket_levels
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.errors import LakesweepError
from lakesweep.ports.references import References
from lakesweep.ports.table import ExpiringFiles

if TYPE_CHECKING:
    from lakesweep.formats.paimon.table import PaimonTable

_log = structlog.get_logger(__name__)
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
            wanted = [row for row in rows if row["kind"] == manifests.ADD and (is_whole or _names(row) & bare)]
            addresses.update(_addresses(table.files, state, wanted))
        except (LakesweepError, ValueError) as exc:
            _log.warning("expired_manifest_skipped", manifest=meta.name, why=str(exc))
    for source in found.sources:
        if not source.retained and source.kind == decode.INDEX:
            addresses.update(await _index_files(table, source.location.name))
    return ExpiringFiles(shortlist=unique_names.shortlist(dict.fromkeys(addresses)))


def _names(row: dict[str, Any]) -> set[str]:
    return {names.stored_name(row["name"]), *(row["extra"] or ())}


def _addresses(files: TableFiles, state: PaimonState, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A data file and the files that lie beside it."""
    buckets: dict[tuple[bytes, int], str] = {}
    for row in rows:
        if row["external"]:
            place = row["external"].rpartition("/")[0]
        else:
            key = (row["partition"], row["bucket"])
            if key not in buckets:
                buckets[key] = bucket_levels(files, state, *key)[-1]
            place = buckets[key]
        yield from (f"{place}/{name}" for name in _names(row))


async def _index_files(table: PaimonTable, manifest: str) -> list[str]:
    try:
        entries = await table.lists.read_index(manifest)
    except LakesweepError as exc:
        _log.warning("expired_manifest_skipped", manifest=manifest, why=str(exc))
        return []
    return [entry.document.get("_EXTERNAL_PATH") or table.files.at("index", entry.name).raw for entry in entries]
