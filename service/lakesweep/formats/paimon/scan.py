"""The live partitions of a snapshot, from its manifests. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats.paimon import names
from lakesweep.formats.paimon.binaryrow import OutsideCalendar, decode_row
from lakesweep.formats.paimon.files import TableFiles, unreadable
from lakesweep.formats.paimon.lists import DECODERS, ListReader
from lakesweep.formats.paimon.options import TableOptions
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.schema import TableSchema
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.files import Tally

_log = structlog.get_logger(__name__)
_COMMITS_READ = 20
"""The newest commits show whose clocks are in use now."""


@dataclass(slots=True)
class _Tally:
    """Adds minus deletes of one partition, and its newest file."""

    files: int = 0
    bytes: int = 0
    updated: datetime | None = None
    undated: bool = False


async def live_partitions(
    lists: ListReader, latest: PaimonSnapshot, schema: TableSchema, options: TableOptions
) -> tuple[Partition, ...]:
    """Partitions with at least one live file, as far as they can expire: not those whose values are outside the
    calendar. Two spellings of one value are two partitions."""
    tallies: dict[bytes, _Tally] = {}
    for counted in await gather_bounded(await lists.manifests_of(latest), lists.by_partition, limit=DECODERS):
        for row in counted.to_pylist():
            tally = tallies.setdefault(row["partition"], _Tally())
            tally.files += row["files_sum"]
            tally.bytes += row["bytes_sum"] or 0
            tally.undated |= row["undated_any"]
            tally.updated = max(filter(None, (tally.updated, row["created_max"])), default=None)
    found = []
    for raw, tally in sorted(tallies.items()):
        try:
            if tally.files > 0:
                found.append(_partition(raw, tally, schema, options))
        except OutsideCalendar as exc:
            _log.warning("partition_never_expires", snapshot=latest.label, why=str(exc))
        except ValueError as exc:
            raise unreadable(latest.location, exc) from exc
    return tuple(found)


async def newest_stored(files: TableFiles, options: TableOptions, partition: Partition) -> datetime | None:
    """When storage last took a file of a partition; None unless it says so of every file."""
    directory = "/".join(filter(None, ((options.data_directory or "").strip("/"), partition.path)))
    times = [one.modified_at for one in await files.names(directory)]
    known = [one for one in times if one is not None]
    return max(known) if known and len(known) == len(times) else None


async def writers_offset(lists: ListReader, snapshots: Sequence[PaimonSnapshot]) -> timedelta | None:
    """How far writers' wall clocks are from UTC, the westernmost of them: a file says when it was made by its writer's
    wall clock, and the commit that added it when that was. None if no recent commit says both."""
    found: list[timedelta] = []
    for snapshot in [one for one in snapshots if one.commit_kind == "APPEND"][-_COMMITS_READ:]:
        for meta in await lists.manifest_list(snapshot, snapshot.delta_list):
            created = (await lists.by_partition(meta)).column("created_max").drop_null()
            if len(created):
                newest = pc.max(created).as_py().replace(tzinfo=None)
                found.append(newest - snapshot.committed_at.replace(tzinfo=None))
    return min(found, default=None)


def _partition(raw: bytes, tally: _Tally, schema: TableSchema, options: TableOptions) -> Partition:
    keys = schema.partition_keys
    values = decode_row(raw, [key.type for key in keys])
    return Partition(
        raw=raw,
        values=values,
        path=names.partition_path(
            keys, values, default=options.default_partition, legacy=options.legacy_partition_names
        ),
        updated=None if tally.undated else tally.updated,
        holds=Tally(files=tally.files, bytes=tally.bytes),
    )
