"""What a stored object is, judged by its name and place only, and in which order it may go. Pure and picklable.

Only places where Paimon keeps files can hold candidates: `manifest/`, `index/`, `statistics/`, temporary files in
`snapshot/` and `changelog/`, of branches too, and bucket directories exactly below the partition levels. Everything
else in the table's directory is reserved, whatever its name: names alone are compared, and a copy of an expired file in
a backup directory must stay. Snapshot and changelog files go first, oldest first, to leave no gap: from then on nobody
can open what is about to lose its files, and the next run finds what an interrupted one leaves. After them deletion
goes from the data up to the lists."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakesweep.formats import markers
from lakesweep.formats.paimon import names
from lakesweep.model.location import Location
from lakesweep.ports.table import FileKind, MatchBy

DATA_STAGE = 0
MANIFEST_STAGE = 1
LIST_STAGE = 2
SNAPSHOT_STAGE = -(2**31)
"""The stage of snapshot 0; the others follow by their ids, all before any other file (see ports.FileKind)."""

_LAST_SNAPSHOT_STAGE = -1
_BUCKET = re.compile(r"^bucket-(\d+|postpone)$")
_OTHER_TABLE = re.compile(r"(schema/schema|snapshot/snapshot)-\d+")
_BRANCH_TEMPORARY = re.compile(
    r"branch/branch-.+/(snapshot|changelog)/[^/]*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.tmp"
)
"""What a writer of a branch did not rename. A branch may have slashes in its name."""

_RESERVED = FileKind(kind="reserved", reserved=True)
_ELSEWHERE = FileKind(kind="other", reserved=True)
_UNKNOWN = FileKind(kind="other", foreign=True)
_OTHER_LOG = FileKind(kind="metadata", reserved=True)
"""Of a table whose home is a partition of this one, or a place that this one keeps files in besides its own directory.
Its buckets look like ours, so it must reach the owner check."""
_TEMPORARY = FileKind(kind="temporary", stage=DATA_STAGE)
_MANIFEST = FileKind(kind="manifest", stage=MANIFEST_STAGE)
_LIST = FileKind(kind="manifest_list", stage=LIST_STAGE)
_INDEX_MANIFEST = FileKind(kind="index_manifest", stage=LIST_STAGE)
_INDEX = FileKind(kind="index", stage=MANIFEST_STAGE)
_STATISTICS = FileKind(kind="statistics", stage=LIST_STAGE)
_DATA = FileKind(kind="data", stage=DATA_STAGE)
_CHANGELOG = FileKind(kind="changelog_data", stage=DATA_STAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonLayout:
    """The places of one table."""

    root: str
    """The table's directory, raw, with a trailing slash."""
    external_roots: tuple[str, ...]
    """Other directories with the same partition and bucket levels, raw, with trailing slashes."""
    data_directory: str
    """Where partitions begin below the table's directory and the other ones: empty or `name/`."""
    partition_levels: int
    data_prefixes: tuple[str, ...]
    changelog_prefixes: tuple[str, ...]
    match_by: MatchBy = MatchBy.NAME

    def classify(self, path: str) -> FileKind:
        for root in self.external_roots:
            if path.startswith(root):
                inside = path[len(root) :]
                data = inside.removeprefix(self.data_directory)
                return self._in_data(data, index_at_top=data == inside)
        if not path.startswith(self.root):
            return _ELSEWHERE
        inside = path[len(self.root) :]
        top, slash, rest = inside.partition("/")
        if slash and "/" not in rest:
            found = self._metadata(top, rest)
            if found is not None:
                return found
        if _BRANCH_TEMPORARY.fullmatch(inside):
            return _TEMPORARY
        if self.data_directory:
            if not inside.startswith(self.data_directory):
                return _ELSEWHERE
            inside = inside[len(self.data_directory) :]
        return self._in_data(inside, index_at_top=False)

    def is_data_directory(self, path: str) -> bool:
        beginnings = [f"{root}{self.data_directory}" for root in (*self.external_roots, self.root)]
        for root in (*beginnings, *self.external_roots):
            if path.startswith(root):
                *partitions, last = path[len(root) :].rstrip("/").split("/")
                if len(partitions) == self.partition_levels and _BUCKET.match(last):
                    return all("=" in level for level in partitions)
                return len(partitions) < self.partition_levels and all("=" in level for level in (*partitions, last))
        return False

    def _metadata(self, directory: str, name: str) -> FileKind | None:
        """A file directly in one of the table's own directories; None for other directories."""
        match directory:
            case "manifest":
                return _in_manifest(name)
            case "snapshot" | "changelog":
                return _in_log(directory, name)
            case "index":
                return _INDEX if name.startswith("index-") or name.endswith(".index") else _temporary_or_unknown(name)
            case "statistics":
                return _STATISTICS if name.startswith("stat-") else _temporary_or_unknown(name)
            case "schema" | "tag" | "consumer" | "branch" | "metadata" | "service":
                return _RESERVED
            case _:
                return None

    def _in_data(self, inside: str, *, index_at_top: bool) -> FileKind:
        *directories, name = inside.split("/")
        if index_at_top and not directories and name.endswith(".index"):
            return _INDEX
        if not directories:
            return _ELSEWHERE
        for level in directories[:-1]:
            if "=" not in level:
                return _ELSEWHERE
        if directories[-1] in markers.PAIMON_DIRECTORIES and _OTHER_TABLE.fullmatch(f"{directories[-1]}/{name}"):
            return _OTHER_LOG
        if len(directories) != self.partition_levels + 1 or not _BUCKET.match(directories[-1]):
            return _ELSEWHERE
        return self._in_bucket(name)

    def _in_bucket(self, name: str) -> FileKind:
        if name.endswith(".managed.blob"):
            return _RESERVED  # shared by several tables' rows; only its owner knows when it is free
        if name.startswith(self.changelog_prefixes):
            return _CHANGELOG
        if name.startswith(self.data_prefixes):
            return _DATA
        if name.startswith("index-") or name.endswith(".index"):
            return _INDEX
        return _temporary_or_unknown(name)


def _in_manifest(name: str) -> FileKind:
    if name.startswith("manifest-list-"):
        return _LIST
    if name.startswith("index-manifest-"):
        return _INDEX_MANIFEST
    if name.startswith("manifest-"):
        return _MANIFEST
    return _temporary_or_unknown(name)


def _in_log(directory: str, name: str) -> FileKind:
    number = names.numbered(name, directory)
    if number is not None:
        return FileKind(kind=directory, stage=min(SNAPSHOT_STAGE + number, _LAST_SNAPSHOT_STAGE))
    if name in names.HINTS:
        return _RESERVED
    return _temporary_or_unknown(name)


def _temporary_or_unknown(name: str) -> FileKind:
    """Writers rename `….tmp` into place; our own local writer uses `.….writing`."""
    return _TEMPORARY if name.endswith((".tmp", ".writing")) else _UNKNOWN


def make_layout(
    location: Location,
    *,
    external_roots: tuple[Location, ...],
    data_directory: str | None,
    partition_levels: int,
    data_prefixes: tuple[str, ...] = (),
    changelog_prefixes: tuple[str, ...] = (),
) -> PaimonLayout:
    """The layout of a table at `location`. Prefixes are those that options name besides the usual ones."""
    return PaimonLayout(
        root=location.as_directory().raw,
        external_roots=tuple(root.as_directory().raw for root in external_roots),
        data_directory=f"{data_directory.strip('/')}/" if data_directory and data_directory.strip("/") else "",
        partition_levels=partition_levels,
        data_prefixes=("data-", *filter(None, data_prefixes)),
        changelog_prefixes=("changelog-", "compacted-changelog-", *filter(None, changelog_prefixes)),
    )
