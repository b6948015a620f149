"""Log cleanup: which versions leave the log. Pure: a listing, properties and a time in; a plan out.

The walk follows Delta's own: it goes through commits, checksums and checkpoints by name, holds undecided files in
a buffer, and releases the buffer only when a usable checkpoint follows and the newest buffered file is expired.
So the log that stays always begins with a checkpoint that every younger version can be rebuilt from. A file that
is not newer than the one before it takes over its time, as time travel does: while that time is needed, both stay.

We differ from Delta where it is safer or leaks: a checkpoint must have been opened to be a boundary, everything at
the boundary's own version stays, and leftovers below it (lost parts of checkpoints, compacted files) go as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakesweep.formats.delta import names
from lakesweep.formats.delta.log import Checkpoint, LogFile, LogListing
from lakesweep.formats.delta.names import LogKind

_WALKED = frozenset({LogKind.COMMIT, LogKind.CHECKSUM, LogKind.CHECKPOINT})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = 1 << 62
"""Milliseconds far in the future: the age of a file whose time is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What opening a checkpoint that might become the boundary has shown."""

    usable: bool
    why: str | None = None
    newest_released_ms: int | None = None
    """The in-commit timestamp of the newest version below it, on tables that have them."""

    def allows(self, cutoff_ms: int) -> bool:
        """May it be the boundary for this cutoff?"""
        return self.usable and (self.newest_released_ms is None or self.newest_released_ms <= cutoff_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where the log begins after cleanup."""

    version: int
    checkpoint: Checkpoint


def cutoff_ms(now: datetime, retention: timedelta) -> int:
    """Log files modified at or before this are expired: `now - retention`, floored to midnight UTC."""
    moment = (now - retention).astimezone(UTC)
    return millis(moment.replace(hour=0, minute=0, second=0, microsecond=0))


def sidecar_cutoff_ms(now: datetime, retention: timedelta) -> int:
    """Sidecars modified before this may go. Never one of the last day: a checkpoint may be in the making."""
    return min(cutoff_ms(now, retention), cutoff_ms(now, timedelta(days=1)))


def boundaries(listing: LogListing, *, cutoff_ms: int, max_version: int) -> list[Boundary]:
    """Every boundary that the walk reaches, oldest first. The log may begin with any that turns out to be usable."""
    walk = _Walk(cutoff_ms=cutoff_ms, max_version=max_version)
    checkpoints = {file.path: one for one in listing.checkpoints for file in one.files}
    for file in listing.files:
        if file.name.kind in _WALKED and not walk.step(file, checkpoints.get(file.path)):
            break
    return walk.reached


def released(listing: LogListing, boundary: Boundary, cutoff_ms: int) -> list[LogFile]:
    """Every log file that goes with this boundary, in the order of names; sidecars are decided apart."""
    going = [file for file in listing.files if _goes(file, boundary.version, cutoff_ms)]
    last_commit = max((file.version for file in going if file.name.kind is LogKind.COMMIT), default=-1)
    going = [file for file in going if file.name.kind is not LogKind.STAGED or file.version <= last_commit]
    beside = {names.companion(file.relative) for file in going}
    return sorted(
        [*going, *(file for file in listing.files if file.relative in beside)], key=lambda file: file.relative
    )


def _goes(file: LogFile, boundary: int, cutoff_ms: int) -> bool:
    match file.name.kind:
        case LogKind.COMMIT | LogKind.CHECKSUM | LogKind.STAGED:
            return file.version < boundary
        case LogKind.CHECKPOINT:
            # A part that is still being written may belong to nobody yet: only old parts of old versions go.
            return file.version < boundary and (file.name.parts == 0 or _time(file) <= cutoff_ms)
        case LogKind.COMPACTED:
            return file.name.end_version < boundary
        case LogKind.SIDECAR | LogKind.OTHER:
            return False


class _Walk:
    """The state of one walk. `step` says whether to go on."""

    def __init__(self, *, cutoff_ms: int, max_version: int) -> None:
        self.reached: list[Boundary] = []
        self._cutoff_ms = cutoff_ms
        self._max_version = max_version
        self._previous: tuple[int, int] | None = None
        """Version and adjusted time of the file before."""
        self._last_buffered: tuple[int, int] | None = None
        self._parts_seen: dict[Checkpoint, int] = {}

    def step(self, file: LogFile, checkpoint: Checkpoint | None) -> bool:
        version, time = file.version, _time(file)
        first = self._previous is None
        adjusted = self._previous is not None and self._previous[0] < version and self._previous[1] >= time
        if adjusted and self._previous is not None:
            time = self._previous[1] + 1
        self._previous = (version, time)
        if first or adjusted or checkpoint is None or file.size_bytes == 0:
            self._last_buffered = (version, time)
            return True
        if file.name.parts:
            self._parts_seen[checkpoint] = self._parts_seen.get(checkpoint, 0) + 1
            if self._parts_seen[checkpoint] < file.name.parts:
                return True
        if not checkpoint.complete:
            self._last_buffered = (version, time)
            return True
        return self._reach(Boundary(version=version, checkpoint=checkpoint), time)

    def _reach(self, boundary: Boundary, time: int) -> bool:
        if self._last_buffered is not None:
            version, newest = self._last_buffered
            if newest > self._cutoff_ms or version > self._max_version:
                return False
        self.reached.append(boundary)
        self._last_buffered = (boundary.version, time)
        return True


def _time(file: LogFile) -> int:
    return _NEVER if file.modified_ms is None else file.modified_ms


def millis(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
