"""Log cleanup: which versions leave the log. Pure: a listing, properties and a time in; a plan out.

The walk follows Delta's own: it goes through commits, checksums and checkpoints by name, holds undecided files in a
buffer, and releases it only when a usable checkpoint follows and the newest buffered file is expired. So the log that
stays begins with a checkpoint that every younger version can be rebuilt from. A file that is not newer than the one
before it takes over its time, as time travel does; but not if both are of one version, so that a checksum can hide the
time of the commit before. We differ where it is safer or against a leak: a young commit ends the walk wherever it is in
the buffer, a checkpoint must have been opened to be a boundary, everything at the boundary's own version stays, and
leftovers below it go as well."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakesweep.formats.delta import log
from lakesweep.formats.delta.log import Checkpoint, LogFile, LogKind, LogListing

_WALKED = frozenset({LogKind.COMMIT, LogKind.CHECKSUM, LogKind.CHECKPOINT})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER = 1 << 62
"""Milliseconds far in the future: the age of a file whose time is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What opening a checkpoint that might become the boundary has shown."""

    usable: bool
    why: str | None = None
    newest_released_ms: int | None = None
    """The in-commit timestamp of the newest version below it, on tables that have them."""

    def allows(self, cutoff_ms: int) -> bool:
        return self.usable and (self.newest_released_ms is None or self.newest_released_ms <= cutoff_ms)


def cutoff_ms(now: datetime, retention: timedelta) -> int:
    """Log files modified at or before this are expired: `now - retention`, floored to midnight UTC."""
    moment = (now - retention).astimezone(UTC)
    return millis(moment.replace(hour=0, minute=0, second=0, microsecond=0))


def sidecar_cutoff_ms(now: datetime, retention: timedelta) -> int:
    """Sidecars modified before this may go. Never one of the last day: a checkpoint may be in the making."""
    return min(cutoff_ms(now, retention), cutoff_ms(now, timedelta(days=1)))


def boundaries(listing: LogListing, *, cutoff_ms: int, max_version: int) -> list[Checkpoint]:
    """Every boundary that the walk reaches, oldest first: a checkpoint that the log may begin with after cleanup, if it
    turns out to be usable."""
    checkpoints = {file.path: one for one in listing.checkpoints for file in one.files}
    reached: list[Checkpoint] = []
    parts_seen: Counter[Checkpoint] = Counter()
    previous: tuple[int, int] | None = None  # version and adjusted time of the file before
    buffered: tuple[int, int] | None = None  # of the last file that is undecided
    youngest_ms = 0  # of all commits so far
    for file in listing.files:
        if file.name.kind not in _WALKED:
            continue
        checkpoint, version, time = checkpoints.get(file.path), file.version, _time(file)
        is_first = previous is None
        adjusted = previous is not None and previous[0] < version and previous[1] >= time
        if adjusted and previous is not None:
            time = previous[1] + 1
        previous = (version, time)
        if file.name.kind is LogKind.COMMIT:
            youngest_ms = max(youngest_ms, time)
        if is_first or adjusted or checkpoint is None or file.size_bytes == 0:
            buffered = previous
            continue
        parts_seen[checkpoint] += 1
        if parts_seen[checkpoint] < file.name.parts:
            continue
        if checkpoint.complete:
            if buffered is not None and (max(youngest_ms, buffered[1]) > cutoff_ms or buffered[0] > max_version):
                break
            reached.append(checkpoint)
        buffered = previous
    return reached


def released(listing: LogListing, boundary: Checkpoint, cutoff_ms: int) -> list[LogFile]:
    """Every log file that goes with this boundary, in the order of names; sidecars are decided apart."""
    going = [file for file in listing.files if _goes(file, boundary.version, cutoff_ms)]
    last_commit = max((file.version for file in going if file.name.kind is LogKind.COMMIT), default=-1)
    going = [file for file in going if file.name.kind is not LogKind.STAGED or file.version <= last_commit]
    beside = {log.companion(file.relative) for file in going}
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


def _time(file: LogFile) -> int:
    return NEVER if file.modified_ms is None else file.modified_ms


def millis(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
