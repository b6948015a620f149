"""Names and places in the directory of a former table: what is deleted with it, and what does not belong there. Pure.
Files through which readers open the table are deleted first, so that nobody finds half of it. Names that no format
writes stay, as they do in every table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakesweep.formats import markers
from lakesweep.model.table import FormatName
from lakesweep.model.trash import TRASH_NAME
from lakesweep.ports.table import FileKind, MatchBy

_ENTRY = FileKind(kind="metadata", stage=-1)
_METADATA = FileKind(kind="metadata", stage=1)
_DATA = FileKind(kind="data")
_FOREIGN = FileKind(kind="other", foreign=True)
_OUTSIDE = FileKind(kind="outside", reserved=True)

_METADATA_DIRECTORIES = {
    FormatName.ICEBERG: frozenset({markers.ICEBERG_METADATA}),
    FormatName.DELTA: frozenset({markers.DELTA_LOG, markers.ICEBERG_METADATA}),
    FormatName.PAIMON: frozenset(
        {
            *markers.PAIMON_DIRECTORIES,
            *("branch", "changelog", "consumer", "index", "manifest", "service", "statistics", "tag"),
            markers.ICEBERG_METADATA,
        }
    ),
}
_OPENS = {
    FormatName.ICEBERG: re.compile(r"metadata/(.*\.metadata\.json(\.gz)?|version-hint\.text)"),
    FormatName.DELTA: re.compile(r"_delta_log/[^/]+|metadata/(.*\.metadata\.json(\.gz)?|version-hint\.text)"),
    FormatName.PAIMON: re.compile(
        r"(branch/branch-[^/]+/)?(snapshot|tag|changelog)/[^/]+|metadata/(.*\.metadata\.json|version-hint\.text)"
    ),
}
"""Whole paths below the table."""
_WRITTEN = (".parquet", ".orc", ".avro", ".puffin", ".bin", ".stats", ".index", ".lance")
"""How the names of files end that some format writes beside its metadata."""
_IN_METADATA = re.compile(
    r".*(\.json|\.gz|\.crc|\.text|\.tmp)|_last_checkpoint|EARLIEST|LATEST|_SUCCESS"
    r"|(snapshot|schema|manifest|manifest-list|index-manifest|index|tag|changelog|consumer|stat)-[^/]*"
)
_BUCKET = re.compile(r"bucket-(\d+|postpone)")
_IN_BUCKET = ("data-", "changelog-", "index-")
_SHARED = ".managed.blob"
"""Paimon's: rows of several tables may lie in one, and only its owner knows when it is free."""
_BRANCH = re.compile(r"^branch/branch-[^/]+/")
_METADATA_FILES = [(marker, re.compile(rf"(?P<above>^|.*/){marker.files}$")) for marker in markers.MARKERS]
_COMPATIBLE = {(FormatName.DELTA, FormatName.ICEBERG), (FormatName.PAIMON, FormatName.ICEBERG)}
"""Formats that keep Iceberg metadata of their own at their root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostLayout:
    """The layout of one former table."""

    root: str
    """Its directory in raw form, with a slash at the end."""
    format: FormatName | None
    """None where only data files are left."""

    @property
    def match_by(self) -> MatchBy:
        """Nothing references it; another table that uses one of its files does so by address."""
        return MatchBy.ADDRESS

    @property
    def _metadata_directories(self) -> frozenset[str]:
        if self.format is None:
            return frozenset()
        marked = (name for one in markers.MARKERS if one.format is self.format for name in one.directories)
        return _METADATA_DIRECTORIES.get(self.format) or frozenset(marked)

    def classify(self, path: str) -> FileKind:
        if not path.startswith(self.root):
            return _OUTSIDE
        relative = path[len(self.root) :]
        *directories, name = relative.split("/")
        if name.endswith(_SHARED):
            return _FOREIGN
        if name.startswith(".") and name.endswith(".crc"):
            name = name[1:].removesuffix(".crc")  # Hadoop's checksum of the file beside it
        written = name.endswith(_WRITTEN)
        if directories and directories[0] in self._metadata_directories:
            if not (written or _IN_METADATA.fullmatch(name)):
                return _FOREIGN
            opens = _OPENS.get(self.format) if self.format else None
            return _ENTRY if opens is None or opens.fullmatch(relative) else _METADATA
        in_bucket = directories and _BUCKET.fullmatch(directories[-1]) and name.startswith(_IN_BUCKET)
        return _DATA if written or in_bucket or name == "_SUCCESS" else _FOREIGN

    def foreign_name(self, paths: Iterable[str]) -> str | None:
        """The first of these that is the metadata of a further table, or of the trash: then the place is not the former
        table's alone."""
        return next((path for path in paths if self._is_foreign_name(path[len(self.root) :])), None)

    def _is_foreign_name(self, relative: str) -> bool:
        directories = relative.split("/")[:-1]
        if TRASH_NAME in directories or markers.HUDI in directories:
            return True
        if self.format is FormatName.PAIMON:
            relative = _BRANCH.sub("", relative, count=1)
        for marker, files in _METADATA_FILES:
            if found := files.search(relative):
                own = marker.format is self.format or (self.format, marker.format) in _COMPATIBLE
                return bool(found["above"]) or not own
        return False
