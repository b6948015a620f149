"""The names of a Delta log. Pure. A name that is not known for certain is OTHER, and nothing ever touches those."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from lakesweep.formats import markers

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


def parse(relative: str) -> LogName:
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
    """The file that a companion belongs to; the name itself when it is none."""
    directory, slash, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".crc"):
        return f"{directory}{slash}{last[1:-4]}"
    return name


def commit_name(version: int) -> str:
    return f"{version:020d}.json"
