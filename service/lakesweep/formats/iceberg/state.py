"""A table's state as the algorithm sees it, made from one metadata file."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from lakesweep.formats import streams
from lakesweep.formats.iceberg import layout, retention, stream_snapshots
from lakesweep.formats.iceberg.catalog import Pointer
from lakesweep.formats.iceberg.metadata import TableMetadata
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.table import TableRef
from lakesweep.ports.table import TableState

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergState:
    """What `TableState.native` holds for Iceberg."""

    metadata: TableMetadata
    pointer: Pointer = field(repr=False)
    no_expiry: str | None = None
    """Why snapshots of this table cannot be expired through its catalog; None when they can."""
    pending: str | None = None
    """A stream that has left manifests which are not committed."""


def build(ref: TableRef, native: IcebergState, tenant_root: Location) -> TableState:
    """The state, or Refused if the table lies outside its tenant's root."""
    metadata = native.metadata
    location = Location.parse(metadata.location)
    roots, left_out = layout.roots_of(metadata, tenant_root)
    if metadata.location in left_out:
        raise Refused(
            "outside_root",
            f"the table is at {location}, outside the tenant's root {tenant_root}: nothing outside is ever touched",
        )
    if left_out:
        log.warning("roots_outside_tenant", table=ref.label, left_out=left_out)
    return TableState(
        ref=ref,
        head=metadata.address,
        table_uuid=metadata.uuid,
        location=location,
        roots=roots,
        snapshots=retention.describe(metadata, metadata.snapshots),
        layout=layout.layout_of(metadata, roots),
        stream=_stream(native),
        moved_from=layout.written_elsewhere(metadata),
        estimated_files=_estimated_files(metadata),
        native=native,
    )


def _stream(native: IcebergState) -> str | None:
    """By its commits, by manifests that wait for one, or by the place that was given to those."""
    placed = "a Flink job" if native.metadata.properties.get(streams.FLINK_MANIFESTS) else None
    return stream_snapshots.writer(native.metadata.snapshots) or native.pending or placed


def _estimated_files(metadata: TableMetadata) -> int | None:
    """What the current snapshot's summary counts; enough to choose an engine."""
    current = metadata.snapshot(metadata.current_snapshot_id)
    if current is None:
        return 0 if not metadata.snapshots else None
    counts = [current.summary.get(name, "") for name in ("total-data-files", "total-delete-files")]
    return sum(int(count) for count in counts if count.isdigit()) if counts[0].isdigit() else None
