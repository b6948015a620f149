"""A Delta table as loaded at one moment, its commits behind the checkpoint replayed. Pure. The last action on a file
wins. A remove protects its file until the retention of removed files has passed, and it overrules the add that the
older checkpoint still has. `DeltaView` is what the algorithm sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.delta import files, retention
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.log import Checkpoint, LogFile, LogListing
from lakesweep.formats.delta.protocol import Metadata, Properties, Protocol
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """The outcome of a replay: the last action on each file."""

    last: pa.Table = field(default_factory=files.none)
    """Of the schema FILES, each key once."""

    @classmethod
    def replay(cls, commits: Iterable[Actions]) -> Tail:
        """Commits in ascending order."""
        actions = pa.concat_tables([files.none(), *(commit.files for commit in commits)])
        keys = actions.column("key")
        if len(pc.unique(keys)) == len(keys):
            return cls(last=actions)
        counted = pc.value_counts(keys)
        repeated = pc.is_in(keys, counted.field("values").filter(pc.greater(counted.field("counts"), 1)))
        numbers = pc.indices_nonzero(repeated)
        last = dict(zip(keys.take(numbers).to_pylist(), numbers.to_pylist(), strict=True))
        once = pc.indices_nonzero(pc.invert(repeated))
        return cls(last=actions.take(pa.concat_arrays([once, pa.array(last.values(), once.type)])))

    def live(self) -> list[str]:
        """Addresses of files that are part of the newest state, each once, in the order of the log."""
        return list(dict.fromkeys(files.addresses(self._last(removed=False)).to_pylist()))

    def elsewhere(self) -> list[str]:
        """The addresses of live files outside the root as the log gives them, each once."""
        return list(dict.fromkeys(files.elsewhere(self._last(removed=False)).to_pylist()))

    def tolerated(self, delete_before_ms: int) -> list[str]:
        """Addresses to keep that may be absent, sorted: what was removed lately, and what outside paths may mean."""
        kept = self.last.filter(protects(self.last, delete_before_ms))
        removed = kept.filter(kept.column("removed_ms").is_valid())
        return sorted({*files.addresses(removed).to_pylist(), *files.aliases(kept).to_pylist()})

    def removed(self) -> pa.Array:
        """Addresses of files that commits removed and did not add again, wherever they are, each once."""
        gone, live = (_everywhere(self._last(removed=removed)) for removed in (True, False))
        return pc.unique(gone.filter(pc.invert(pc.is_in(gone, live)))) if len(gone) else gone

    def still_held(self, removed: pa.Array, checkpoint: pa.Table, delete_before_ms: int) -> pa.Array:
        """Which of the removed addresses an action of the checkpoint keeps that no commit has overruled: one file of
        deletion vectors serves many data files."""
        overruled = pc.is_in(checkpoint.column("key"), self.last.column("key").combine_chunks())
        holding = checkpoint.filter(pc.and_(pc.invert(overruled), protects(checkpoint, delete_before_ms)))
        held = pa.concat_arrays([_everywhere(holding), files.aliases(holding)])
        return removed.filter(files.among(removed, held))

    def _last(self, *, removed: bool) -> pa.Table:
        times = self.last.column("removed_ms")
        return self.last.filter(times.is_valid() if removed else times.is_null())


def _everywhere(actions: pa.Table) -> pa.Array:
    return pa.concat_arrays([files.addresses(actions), files.elsewhere(actions)])


def protects(actions: pa.Table, delete_before_ms: int) -> pa.ChunkedArray:
    """Which actions keep their files: adds do, and removes that have not expired."""
    return pc.fill_null(pc.greater_equal(actions.column("removed_ms"), delete_before_ms), True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCheckpoint:
    """A checkpoint that was opened: what it says of the table, and every file of it."""

    checkpoint: Checkpoint
    head: Actions
    sidecars: tuple[LogFile, ...]

    @property
    def files(self) -> tuple[LogFile, ...]:
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
    inspected: Mapping[Checkpoint, retention.Inspected]
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
