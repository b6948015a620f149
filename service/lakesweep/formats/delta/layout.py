"""What an unreferenced object below a Delta table is, by name and place. Pure and picklable. As in VACUUM, a name that
begins with `_` or `.` stays at every level, unless it is a partition directory or a directory of change data. Unlike
VACUUM, only names that Delta writers produce, and addresses that an expired remove spells, may go; any other is
reported and stays. So do the indexes in `_delta_index`, which serve live data files and which no log names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakesweep.formats import markers
from lakesweep.formats.delta import log
from lakesweep.formats.delta.log import LogKind
from lakesweep.ports.table import FileKind, MatchBy

_VECTOR = re.compile(r"deletion_vector_[0-9a-f-]{36}\.bin")
_CHANGE_DATA = "_change_data"
_HUDI = f"{markers.HUDI}/"
_RESERVED_LOG = FileKind(kind="log", reserved=True)
_DATA, _KEPT_DATA = FileKind(kind="data"), FileKind(kind="data", reserved=True)
_VERSIONS_PER_STAGE = 1000
_FIRST_LOG_STAGE = -2_000_000_000
_LAST_LOG_STAGE = -1
"""All before any other file (see ports.FileKind)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaLayout:
    """Names and places of one table."""

    prefix: str
    """The table's root as a raw address with its trailing slash."""
    partition_columns: tuple[str, ...]
    iceberg_metadata: bool
    """UniForm keeps Iceberg metadata in directories called `metadata`."""
    hudi_metadata: bool = False
    """UniForm keeps Hudi's metadata in `.hoodie` at the root."""
    keep_data: bool = False
    """Nothing but log files may go: another table reads these data files."""
    match_by: MatchBy = MatchBy.ADDRESS
    freed: frozenset[str] = frozenset()
    """Addresses of data files that bear none of Delta's endings: expired removes name them. Trino writes such files."""

    def classify(self, path: str) -> FileKind:
        """What an object is. Everything in the log is foreign here: it goes only if the walk has named it."""
        relative = path[len(self.prefix) :]
        if not path.startswith(self.prefix) or not relative:
            return FileKind(kind="outside", reserved=True)
        if self._is_plain_data(relative):
            return _KEPT_DATA if self.keep_data else _DATA
        return self._looked_at(path, relative.split("/"))

    def _looked_at(self, path: str, segments: list[str]) -> FileKind:
        if segments[0] == log.LOG_DIRECTORY:
            return _log_kind("/".join(segments[1:]))
        if self.is_other_table(path):
            return FileKind(kind="metadata", reserved=True)
        hidden = next((segment for segment in segments if self._hidden(segment)), None)
        if hidden is not None:
            # Another table's log in plain sight is recognised: its data files look like orphans of this one.
            return FileKind(kind="metadata" if hidden == log.LOG_DIRECTORY else "hidden", reserved=True)
        kind = _data_kind(segments) or ("data" if path in self.freed else None)
        if kind is None:
            return FileKind(kind="other", foreign=True)
        return FileKind(kind=kind, reserved=self.keep_data)

    def _is_plain_data(self, relative: str) -> bool:
        """The quick answer for most files: a data file in no directory that could mean anything."""
        return (
            relative.endswith(".parquet")
            and not relative.startswith(("_", "."))
            and "/_" not in relative
            and "/." not in relative
            and not (self.iceberg_metadata and markers.ICEBERG_METADATA in relative)
        )

    def is_other_table(self, path: str) -> bool:
        """Does the name show another format's table? Iceberg's `metadata/` at the root is for `uniform`."""
        relative = path[len(self.prefix) :]
        if not any(mark in relative for mark in markers.SIGNS.beside_delta_parts):
            return False
        return markers.SIGNS.beside_delta.search(relative) is not None and not (
            self.hudi_metadata and relative.startswith(_HUDI)
        )

    def is_data_directory(self, path: str) -> bool:
        """May this directory be removed once it is empty? Not one that is hidden, nor one inside such."""
        below = path[len(self.prefix) :].rstrip("/")
        return path.startswith(self.prefix) and bool(below) and not any(map(self._hidden, below.split("/")))

    def _hidden(self, segment: str) -> bool:
        if self.iceberg_metadata and segment == markers.ICEBERG_METADATA:
            return True
        if not segment.startswith(("_", ".")) or segment == _CHANGE_DATA:
            return False
        return not any(segment.startswith(f"{column}=") for column in self.partition_columns)


def _data_kind(segments: list[str]) -> str | None:
    name = segments[-1]
    if _VECTOR.fullmatch(name):
        return "deletion_vector"
    if not name.endswith(".parquet"):
        return None
    return "change_data" if segments[0] == _CHANGE_DATA else "data"


def _log_kind(relative: str) -> FileKind:
    name = log.parse_name(log.beside(relative))
    if name.kind is LogKind.OTHER:
        return _RESERVED_LOG
    return FileKind(kind=name.kind.value, foreign=True, stage=_stage(name.kind, name.version))


def _stage(kind: LogKind, version: int) -> int:
    """The log first, so that nobody can open a version that is about to lose its files; what an interrupted sweep
    leaves of the data has no name any more, and the next one finds it as orphans. From the oldest versions on, to leave
    no hole; commits before the checkpoints of the same versions; sidecars when no deleted checkpoint names them."""
    if kind is LogKind.SIDECAR:
        return _LAST_LOG_STAGE
    block = min(version // _VERSIONS_PER_STAGE, -_FIRST_LOG_STAGE // 2 - 2)
    return _FIRST_LOG_STAGE + 2 * block + (1 if kind is LogKind.CHECKPOINT else 0)
