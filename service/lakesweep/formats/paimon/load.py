"""From a log to a PaimonView: options, roots, layout, and what is needed to decide. Reads manifests only where
partitions expire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import structlog

from lakesweep.formats import streams
from lakesweep.formats.paimon import expiry, partitions, scan
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.layout import PaimonLayout, make_layout
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.options import TableOptions, external_roots, read_options
from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.schema import TableSchema
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.formats.paimon.view import PaimonView
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location

if TYPE_CHECKING:
    from lakesweep.formats.paimon.table import PaimonTable

_log = structlog.get_logger(__name__)


def native_state(log: Log, *, checked_at: datetime | None, given_up: frozenset[str]) -> PaimonState:
    """The log with the options in force. Raises Refused when those are wrong."""
    return PaimonState(
        log=log,
        options=read_options(log.schemas[-1].options),
        partitions=(),
        partitions_checked_at=checked_at,
        given_up=given_up,
    )


async def with_partitions(native: PaimonState, lists: ListReader, files: TableFiles) -> PaimonState:
    """With the partitions that may have to go; none are looked for unless partitions expire. Storage and the writers'
    clocks are read only where the zone decides."""
    schema, expiry_options = native.log.schemas[-1], native.options.partitions
    if native.latest is None or expiry_options.time is None or not schema.partition_keys:
        return native
    found = await scan.live_partitions(lists, native.latest, schema, native.options)
    now = await files.storage.now()
    unsure = partitions.unsure(found, schema.partition_keys, expiry_options, now)
    elsewhere = any(external_roots(one.options) for one in native.log.schemas)
    if not unsure or elsewhere:  # files in other places are not looked for: then the last zone decides
        return replace(native, partitions=found)
    times = {one.raw: await scan.newest_stored(files, native.options, one) for one in unsure}
    return replace(
        native,
        partitions=tuple(replace(one, stored=times.get(one.raw)) for one in found),
        writers_offset=await scan.writers_offset(lists, native.log.snapshots),
    )


async def table_view(table: PaimonTable, native: PaimonState) -> PaimonView:
    place = table.location
    schemas = (*native.log.schemas, *native.log.other_schemas)
    outside = external_places(schemas, place, table.tenant_root)
    return PaimonView(
        ref=table.ref,
        head=native.log.head,
        table_uuid=native.log.table_id,
        location=place,
        roots=(place.as_directory(), *outside),
        snapshots=tuple(expiry.as_model(snapshot, native) for snapshot in native.snapshots),
        layout=_layout(native.log, native.options, place, outside),
        stream=_stream(native.log),
        estimated_files=await _live_files(native, table.lists),
        history=tuple(snapshot.location.raw for snapshot in (*native.snapshots, *native.changelogs)),
        native=native,
        table=table,
    )


def _stream(log: Log) -> str | None:
    """A stream that anything retained was committed by, the main table's newest first."""
    committed = (*reversed(log.snapshots), *log.branched, *log.tags, *log.changelogs)
    return next((stream for one in committed if (stream := streams.of_commit(one.document)) is not None), None)


def external_places(schemas: Iterable[TableSchema], location: Location, tenant_root: Location) -> tuple[Location, ...]:
    """Other directories with files of this table, of every schema it ever had, none inside another. Places outside
    the tenant's root are left out: they are never listed, and what is referenced there is not missed."""
    found: list[Location] = []
    for schema in schemas:
        for text in external_roots(schema.options):
            try:
                place = Location.parse(text).as_directory()
            except ValueError as exc:
                raise Refused("bad_table_options", f"an external path of schema {schema.id}: {exc}") from exc
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


async def _live_files(native: PaimonState, lists: ListReader) -> int | None:
    """Files live in the latest snapshot, by the counts in its lists."""
    if native.latest is None:
        return None
    return sum(meta.added - meta.deleted for meta in await lists.manifests_of(native.latest))
