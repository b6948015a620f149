"""Which partition and bucket directories may be empty once some manifests' files are gone. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from lakesweep.formats.paimon.binaryrow import decode_row
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.manifests import ManifestMeta
from lakesweep.formats.paimon.names import partition_path
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.errors import LakesweepError

_log = structlog.get_logger(__name__)
_POSTPONED = -2
"""The bucket of files that have not been given one yet."""


async def directories_of(
    files: TableFiles, lists: ListReader, state: PaimonState, metas: Iterable[ManifestMeta]
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
    path = partition_path(
        schema.partition_keys,
        decode_row(partition, [key.type for key in schema.partition_keys]),
        default=options.default_partition,
        legacy=options.legacy_partition_names,
    )
    return _levels(files, options.data_directory or "", path, bucket)


def _levels(files: TableFiles, data_directory: str, partition: str, bucket: int) -> list[str]:
    start = files.at(data_directory) if data_directory.strip("/") else files.location
    levels = partition.split("/") if partition else []
    places = [start.join(*levels[:depth]) for depth in range(1, len(levels) + 1)]
    places.append(start.join(*levels, "bucket-postpone" if bucket == _POSTPONED else f"bucket-{bucket}"))
    return [place.raw for place in places]
