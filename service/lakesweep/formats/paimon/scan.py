"""The live partitions of a snapshot, from its manifests. Reads only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.bounded import gather_bounded
from lakesweep.formats.paimon import manifests, names
from lakesweep.formats.paimon.binaryrow import decode_row
from lakesweep.formats.paimon.files import unreadable
from lakesweep.formats.paimon.lists import DECODERS, ListReader
from lakesweep.formats.paimon.manifests import ManifestMeta
from lakesweep.formats.paimon.options import TableOptions
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.schema import TableSchema
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.files import Tally


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
    """Partitions with at least one live file. Two spellings of one value are two partitions."""

    async def count(meta: ManifestMeta) -> pa.Table:
        table = await lists.table(meta, ("kind", "partition", "created", "size"))
        return await asyncio.to_thread(_count, table)

    tallies: dict[bytes, _Tally] = {}
    for counted in await gather_bounded(await lists.manifests_of(latest), count, limit=DECODERS):
        for row in counted.to_pylist():
            tally = tallies.setdefault(row["partition"], _Tally())
            tally.files += row["sign_sum"]
            tally.bytes += row["signed_size_sum"] or 0
            tally.undated |= row["undated_any"]
            tally.updated = max(filter(None, (tally.updated, row["created_max"])), default=None)
    types = [key.type for key in schema.partition_keys]
    try:
        return tuple(
            Partition(
                raw=raw,
                values=(values := decode_row(raw, types)),
                path=names.partition_path(
                    schema.partition_keys,
                    values,
                    default=options.default_partition,
                    legacy=options.legacy_partition_names,
                ),
                updated=None if tally.undated else tally.updated,
                holds=Tally(files=tally.files, bytes=tally.bytes),
            )
            for raw, tally in sorted(tallies.items())
            if tally.files > 0
        )
    except ValueError as exc:
        raise unreadable(latest.location, exc) from exc


def _count(table: pa.Table) -> pa.Table:
    signs = pc.if_else(pc.equal(table.column("kind"), manifests.ADD), 1, -1)
    table = table.append_column("sign", signs).append_column("undated", pc.is_null(table.column("created")))
    table = table.append_column("signed_size", pc.multiply(table.column("size"), signs))
    wanted = [("sign", "sum"), ("signed_size", "sum"), ("created", "max"), ("undated", "any")]
    return table.group_by("partition").aggregate(wanted)
