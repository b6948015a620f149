"""The files of one `_delta_log`, sorted into what they are. Pure: a listing in, values out. Decides which checkpoints
are complete by their names and sizes, and which files make the newest state. Whether a checkpoint can really be read is
not known here. A name that is not known for certain is OTHER, and nothing touches it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from lakesweep.formats import markers
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location

LOG_DIRECTORY = markers.DELTA_LOG
SIDECARS = "_sidecars"
STAGED_COMMITS = "_staged_commits"
LAST_CHECKPOINT = "_last_checkpoint"
LAST_VACUUM = "_last_vacuum_info"


class LogKind(StrEnum):
    """What a file below `_delta_log` is."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    CHECKPOINT = "checkpoint"
    COMPACTED = "compacted"
    STAGED = "staged_commit"
    SIDECAR = "sidecar"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogName:
    """A name taken apart. `version` is -1 where a name has none."""

    kind: LogKind
    version: int = -1
    end_version: int = -1
    """Of a compacted file: its last version."""
    part: int = 0
    parts: int = 0
    """Of a multi-part checkpoint; 0 for every other kind."""
    unique: str = ""
    """Of a checkpoint named by UUID."""


_OTHER = LogName(kind=LogKind.OTHER)
_VERSION = r"(?P<version>\d{20})"
_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (LogKind.COMMIT, rf"{_VERSION}\.json"),
        (LogKind.CHECKSUM, rf"{_VERSION}\.crc"),
        (LogKind.CHECKPOINT, rf"{_VERSION}\.checkpoint\.parquet"),
        (LogKind.CHECKPOINT, rf"{_VERSION}\.checkpoint\.(?P<part>\d+)\.(?P<parts>\d+)\.parquet"),
        (LogKind.CHECKPOINT, rf"{_VERSION}\.checkpoint\.(?P<unique>[^./]+)\.(?:json|parquet)"),
        (LogKind.COMPACTED, rf"{_VERSION}\.(?P<end>\d{{20}})\.compacted\.json"),
        (LogKind.STAGED, rf"{STAGED_COMMITS}/{_VERSION}\.[^./]+\.json"),
        (LogKind.SIDECAR, rf"{SIDECARS}/[^/]+\.parquet"),
    )
)


def parse_name(relative: str) -> LogName:
    """Take apart a path relative to `_delta_log`. Versions have exactly twenty digits, as the protocol writes them."""
    if relative.rpartition("/")[2].startswith("."):
        return _OTHER
    for kind, pattern in _PATTERNS:
        found = pattern.fullmatch(relative)
        if found:
            parts = found.groupdict()
            return LogName(
                kind=kind,
                version=int(parts.get("version") or -1),
                end_version=int(parts.get("end") or -1),
                part=int(parts.get("part") or 0),
                parts=int(parts.get("parts") or 0),
                unique=parts.get("unique") or "",
            )
    return _OTHER


def companion(name: str) -> str:
    """Hadoop's local file system keeps a checksum beside each file: `.name.crc`. It dies with its file."""
    directory, slash, last = name.rpartition("/")
    return f"{directory}{slash}.{last}.crc"


def beside(name: str) -> str:
    """The file that a companion belongs to; the name itself if it is none."""
    directory, slash, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".crc"):
        return f"{directory}{slash}{last[1:-4]}"
    return name


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogFile(NamedTuple):
    """One listed file of the log. A tuple, since a log may have very many."""

    path: str
    """Raw address."""
    relative: str
    """Below `_delta_log`."""
    name: LogName
    size_bytes: int
    modified_ms: int | None
    """None when the store does not say: then the file counts as new."""
    etag: str | None = None

    @property
    def stored(self) -> StoredObject:
        modified = None if self.modified_ms is None else _EPOCH + timedelta(milliseconds=self.modified_ms)
        return StoredObject(
            location=Location.parse(self.path), size_bytes=self.size_bytes, modified_at=modified, etag=self.etag
        )

    @property
    def version(self) -> int:
        return self.name.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All files of one checkpoint. A version may have several checkpoints."""

    version: int
    files: tuple[LogFile, ...]
    complete: bool
    """Every part is there and none is empty."""

    @property
    def may_use_sidecars(self) -> bool:
        """Multi-part checkpoints never do; a classic name may hold either spec."""
        return self.files[0].name.parts == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """One complete listing of `_delta_log`."""

    files: tuple[LogFile, ...]
    """Everything, in the order of names."""
    commits: Mapping[int, LogFile]
    checkpoints: tuple[Checkpoint, ...]
    """By version; inside a version by name."""
    sidecars: Mapping[str, LogFile]
    """By bare name."""
    hint: LogFile | None
    """`_last_checkpoint`."""

    @property
    def latest_version(self) -> int:
        """The newest commit, -1 when there is none."""
        return max(self.commits, default=-1)


def arrange(files: Iterable[LogFile]) -> LogListing:
    ordered = tuple(sorted(files, key=lambda file: file.relative))
    groups: dict[tuple[int, int, str], list[LogFile]] = {}
    for file in ordered:
        if file.name.kind is LogKind.CHECKPOINT:
            unique = "" if file.name.parts else file.relative
            groups.setdefault((file.version, file.name.parts, unique), []).append(file)
    return LogListing(
        files=ordered,
        commits={file.version: file for file in ordered if file.name.kind is LogKind.COMMIT},
        checkpoints=tuple(_checkpoint(parts) for _, parts in sorted(groups.items())),
        sidecars={file.relative.rpartition("/")[2]: file for file in ordered if file.name.kind is LogKind.SIDECAR},
        hint=next((file for file in ordered if file.relative == LAST_CHECKPOINT), None),
    )


def _checkpoint(files: list[LogFile]) -> Checkpoint:
    expected = files[0].name.parts
    seen = {file.name.part for file in files}
    whole = not expected or seen == set(range(1, expected + 1))
    return Checkpoint(
        version=files[0].version, files=tuple(files), complete=whole and all(file.size_bytes > 0 for file in files)
    )


def first_gap(commits: Mapping[int, LogFile], first: int, last: int) -> int | None:
    return next((version for version in range(first, last + 1) if version not in commits), None)


def earliest_reliable(listing: LogListing) -> int | None:
    """The oldest version from which everything up to the newest can be rebuilt: version 0 with every commit, or a
    complete checkpoint with its own commit and no gap behind it."""
    latest = listing.latest_version
    if latest < 0:
        return None
    # Walk down from the newest commit to the end of its unbroken run.
    start = latest
    while start - 1 in listing.commits:
        start -= 1
    if start == 0:
        return 0
    return next((one.version for one in listing.checkpoints if one.complete and one.version >= start), None)
