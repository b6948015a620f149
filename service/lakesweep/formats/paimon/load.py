"""From a log to a PaimonView: options, roots, layout, and what is needed to decide. Reads manifests only where
partitions expire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep.aio import gather_bounded
from lakesweep.formats import streams
from lakesweep.formats.paimon import names, partitions, retention
from lakesweep.formats.paimon.binaryrow import OutsideCalendar, decode_row
from lakesweep.formats.paimon.files import TableFiles, unreadable
from lakesweep.formats.paimon.layout import PaimonLayout, make_layout
from lakesweep.formats.paimon.lists import DECODERS, ListReader
from lakesweep.formats.paimon.options import TableOptions, external_roots
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.schema import TableSchema
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.formats.paimon.view import PaimonView
from lakesweep.model.errors import Refused
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode

if TYPE_CHECKING:
    from lakesweep.formats.paimon.table import PaimonTable

_log = structlog.get_logger(__name__)
_COMMITS_READ = 20
"""The newest commits show whose clocks are in use now."""


async def with_partitions(native: PaimonState, lists: ListReader, files: TableFiles) -> PaimonState:
    """With the partitions that may have to go; none are looked for unless partitions expire. Storage and the writers'
    clocks are read only where the zone decides."""
    schema, expiry_options = native.log.schemas[-1], native.options.partitions
    if native.latest is None or expiry_options.time is None or not schema.partition_keys:
        return native
    found = await live_partitions(lists, native.latest, schema, native.options)
    now = await files.storage.now()
    unsure = partitions.unsure(found, schema.partition_keys, expiry_options, now)
    elsewhere = any(external_roots(one.options) for one in native.log.schemas)
    if not unsure or elsewhere:  # files in other places are not looked for: then the last zone decides
        return replace(native, partitions=found)
    times = {one.raw: await newest_stored(files, native.options, one) for one in unsure}
    return replace(
        native,
        partitions=tuple(replace(one, stored=times.get(one.raw)) for one in found),
        writers_offset=await writers_offset(lists, native.log.snapshots),
    )


async def table_view(table: PaimonTable, native: PaimonState) -> PaimonView:
    place = table.location
    schemas = (*native.log.schemas, *native.log.other_schemas)
    outside = external_places(schemas, place, table.tenant_root)
    log = native.log  # a stream is what anything retained was committed by, the main table's newest first
    committed = (*reversed(log.snapshots), *log.branched, *log.tags, *log.changelogs)
    metas = await table.lists.manifests_of(native.latest) if native.latest else ()
    return PaimonView(
        ref=table.ref,
        head=native.log.head,
        table_uuid=native.log.table_id,
        location=place,
        roots=(place.as_directory(), *outside),
        snapshots=tuple(retention.as_model(snapshot, native) for snapshot in native.snapshots),
        layout=_layout(native.log, native.options, place, outside),
        stream=next(filter(None, (streams.of_commit(one.document) for one in committed)), None),
        estimated_files=sum(meta.added - meta.deleted for meta in metas) if native.latest else None,
        history=tuple(snapshot.location.raw for snapshot in (*native.snapshots, *native.changelogs)),
        native=native,
        table=table,
    )


def external_places(schemas: Iterable[TableSchema], location: Location, tenant_root: Location) -> tuple[Location, ...]:
    """Other directories with files of this table, of every schema it ever had, none inside another. Places outside
    the tenant's root are left out: they are never listed, and what is referenced there is not missed."""
    found: list[Location] = []
    for schema in schemas:
        for text in external_roots(schema.options):
            try:
                place = Location.parse(text).as_directory()
            except ValueError as exc:
                raise Refused(RefusalCode.BAD_TABLE_OPTIONS, f"an external path of schema {schema.id}: {exc}") from exc
            inside = tenant_root.contains(place)
            if not inside:
                _log.warning("external_path_not_looked_at", place=place.raw, tenant_root=tenant_root.raw)
            if inside and not any(place.overlaps(other) for other in (location, *found)):
                found.append(place)
    return tuple(found)


def _layout(log: Log, options: TableOptions, location: Location, outside: tuple[Location, ...]) -> PaimonLayout:
    schemas = (*log.schemas, *log.other_schemas)
    return make_layout(
        location,
        external_roots=outside,
        data_directory=options.data_directory,
        partition_levels=len(log.schemas[-1].partition_keys),
        data_prefixes=_values((schema.options for schema in schemas), "data-file.prefix"),
        changelog_prefixes=_values((schema.options for schema in schemas), "changelog-file.prefix"),
    )


def _values(options: Iterable[Mapping[str, str]], key: str) -> tuple[str, ...]:
    """Everything an option was ever set to."""
    return tuple(dict.fromkeys(one[key] for one in options if one.get(key)))


async def live_partitions(
    lists: ListReader, latest: PaimonSnapshot, schema: TableSchema, options: TableOptions
) -> tuple[Partition, ...]:
    """Partitions with a live file, none outside the calendar. Two spellings of one value are two partitions."""
    counted = await gather_bounded(await lists.manifests_of(latest), lists.by_partition, limit=DECODERS)
    if not counted:
        return ()
    sums = [("files", "sum"), ("bytes", "sum"), ("created", "max"), ("undated", "any")]
    tallies = pa.concat_tables(counted).group_by("partition").aggregate(sums)
    found = []
    for tally in tallies.sort_by("partition").to_pylist():
        try:
            if tally["files_sum"] > 0:
                found.append(_partition(tally, schema, options))
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
            created = (await lists.by_partition(meta)).column("created").drop_null()
            if len(created):
                newest = pc.max(created).as_py().replace(tzinfo=None)
                found.append(newest - snapshot.committed_at.replace(tzinfo=None))
    return min(found, default=None)


def _partition(tally: Mapping[str, Any], schema: TableSchema, options: TableOptions) -> Partition:
    keys = schema.partition_keys
    values = decode_row(tally["partition"], [key.type for key in keys])
    return Partition(
        raw=tally["partition"],
        values=values,
        path=names.partition_path(
            keys, values, default=options.default_partition, legacy=options.legacy_partition_names
        ),
        updated=None if tally["undated_any"] else tally["created_max"],
        holds=Tally(files=tally["files_sum"], bytes=tally["bytes_sum"] or 0),
    )
