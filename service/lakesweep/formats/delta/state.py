"""A Delta table as loaded at one moment. Values only; `DeltaView` is what the algorithm sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from lakesweep.formats.delta import files, retention
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import Checkpoint, LogFile, LogListing
from lakesweep.formats.delta.log_replay import Tail
from lakesweep.formats.delta.protocol import Metadata, Properties, Protocol
from lakesweep.formats.delta.retention import Inspected
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCheckpoint:
    """A checkpoint that was opened: what it says of the table, and every file of it."""

    checkpoint: Checkpoint
    head: Actions
    sidecars: tuple[LogFile, ...]

    @property
    def files(self) -> tuple[LogFile, ...]:
        """Everything that must be decoded to know its adds and removes."""
        return (*self.checkpoint.files, *self.sidecars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What makes the newest state: a checkpoint, or none when the log begins at version 0, and what came after."""

    checkpoint: OpenedCheckpoint | None
    commits: tuple[LogFile, ...]
    """Behind the checkpoint, ascending."""
    tail: Tail
    protocol: Protocol
    metadata: Metadata
    stream: str | None = None
    """A stream that commits to the table, if the log names one."""

    @property
    def files(self) -> tuple[LogFile, ...]:
        """Every log file that the newest state is read from."""
        return (*(self.checkpoint.files if self.checkpoint else ()), *self.commits)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaState:
    """Everything that was read."""

    root: Location
    as_of: datetime
    """When ages are judged. One cycle judges everything at one moment."""
    version: int
    listing: LogListing
    segment: Segment
    properties: Properties
    last_checkpoint: int | None
    """The version in `_last_checkpoint`; None when there is no such file."""
    inspected: Mapping[Checkpoint, Inspected]
    live_files: int | None
    """How many files the newest version has by its own checksum file, where there is one."""
    removed_below: pa.Table = field(default_factory=files.none, compare=False)
    """Of the schema FILES: what commits at or below the checkpoint have removed inside the retention."""

    freed: frozenset[str] = frozenset()
    """Addresses with none of Delta's endings that expired removes name."""

    def delete_before_ms(self, floor: timedelta = GRACE_FLOOR) -> int:
        """Removes older than this no longer protect their files. A retention of zero stays set after somebody's VACUUM
        by hand, and readers may be at work: `floor` is the least that we wait."""
        return retention.millis(self.as_of - max(floor, self.properties.deleted_file_retention))
