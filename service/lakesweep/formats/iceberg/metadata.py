"""Read a metadata.json into values: every snapshot, every ref, every file that it names. Pure. It never guesses: what
is malformed is Unreadable, naming the file and the field; a format version above 3 is Refused. A table that may not be
cleaned is still parsed; whether it may be is the decision of `unsupported` alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from lakesweep.formats import bounds, markers
from lakesweep.formats.iceberg.json_fields import JsonFields
from lakesweep.formats.inflate import Damaged, gunzip, parse_json
from lakesweep.model.errors import Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode

NEWEST_VERSION = 3
"""Format version 4 may hold relative paths and Parquet manifests: reading it by version 3's rules loses files."""

MAIN = "main"
GC_ENABLED = "gc.enabled"
HISTORY_PROPERTIES = "history.expire."
"""Prefix of properties that decide which snapshots expire."""
RETENTION_PROPERTIES = (HISTORY_PROPERTIES, GC_ENABLED)
"""Prefix of properties that decide what may be deleted."""
METADATA_SUFFIXES = markers.ICEBERG_SUFFIXES

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GZIP_MAGIC = b"\x1f\x8b"


class RefKind(StrEnum):
    """A branch keeps its ancestors too, a tag only what it points at."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotEntry:
    """One snapshot. Either `manifest_list` or, in old version 1 files, `manifests` names its manifests."""

    id: int
    parent: int | None
    timestamp_ms: int
    manifest_list: str | None
    manifests: tuple[str, ...]
    summary: dict[str, str]

    @property
    def committed_at(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryProperties:
    """A retention: of a ref, or the table's own (`history.expire.*`). None where it says nothing."""

    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None
    max_ref_age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref(HistoryProperties):
    """A branch or tag with its own retention, where it has one."""

    name: str
    kind: RefKind
    snapshot_id: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsEntry:
    """A statistics file and the snapshot it describes."""

    snapshot_id: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """One metadata.json."""

    address: str
    """Where it was read, normalised: the identity of this state of the table."""
    format_version: int
    uuid: str | None
    location: str
    properties: dict[str, str]
    current_snapshot_id: int | None
    snapshots: tuple[SnapshotEntry, ...]
    refs: tuple[Ref, ...]
    metadata_log: tuple[str, ...]
    """Earlier metadata files, oldest first."""
    logged_ms: tuple[int | None, ...]
    """When each of them was written, by its writer's clock."""
    statistics: tuple[StatisticsEntry, ...]
    partition_statistics: tuple[StatisticsEntry, ...]
    partition_fields: tuple[str, ...]
    """Names of the partition fields of every spec, old ones included."""
    history: HistoryProperties
    encrypted: bool
    updated_ms: int | None = None
    """When it was written, by its writer's clock."""

    def snapshot(self, snapshot_id: int | None) -> SnapshotEntry | None:
        return next((entry for entry in self.snapshots if entry.id == snapshot_id), None)

    @property
    def statistics_files(self) -> tuple[StatisticsEntry, ...]:
        """Table and partition statistics alike: both only name files."""
        return self.statistics + self.partition_statistics


def parse(address: str, data: bytes) -> TableMetadata:
    top = JsonFields(address, document(address, data))
    if is_view(top):
        raise Unreadable(address, "it is the metadata of a view, not of a table")
    version = top.integer("format-version")
    if version > NEWEST_VERSION:
        raise Refused(
            RefusalCode.UNSUPPORTED, f"{address} has format version {version}; 1 to {NEWEST_VERSION} are supported"
        )
    if version < 1:
        raise top.fault("format-version", f"is {version}")
    properties = top.strings("properties")
    snapshots = tuple(_snapshot(entry) for entry in top.objects("snapshots"))
    if len({entry.id for entry in snapshots}) != len(snapshots):
        raise top.fault("snapshots", "contains a duplicate snapshot id")
    current = top.optional_integer("current-snapshot-id")
    current = None if current == -1 else current
    metadata = TableMetadata(
        address=address,
        format_version=version,
        uuid=table_uuid(top),
        location=_location(top),
        properties=properties,
        current_snapshot_id=current,
        snapshots=snapshots,
        refs=_refs(top, current),
        metadata_log=tuple(entry.text("metadata-file") for entry in top.objects("metadata-log")),
        logged_ms=tuple(entry.optional_integer("timestamp-ms") for entry in top.objects("metadata-log")),
        statistics=_statistics(top, "statistics"),
        partition_statistics=_statistics(top, "partition-statistics"),
        partition_fields=_partition_fields(top),
        history=_history(top, properties),
        updated_ms=top.optional_integer("last-updated-ms"),
        encrypted=bool(top.items("encryption-keys")) or any(entry.has("key-id") for entry in top.objects("snapshots")),
    )
    if current is not None and metadata.snapshot(current) is None:
        raise top.fault("current-snapshot-id", f"names snapshot {current}, which is not in the file")
    return metadata


def document(address: str, data: bytes) -> object:
    """The file's JSON. Sniffed, since both `.gz.metadata.json` and `.metadata.json.gz` are in use."""
    try:
        return parse_json(plain_text(data))
    except Damaged as exc:
        raise Unreadable(address, f"not a complete gzip file ({exc})") from exc
    except ValueError as exc:
        raise Unreadable(address, f"not a JSON document ({exc})") from exc


def plain_text(data: bytes) -> bytes:
    """The text of a metadata file that may be compressed. ValueError if it becomes too large or is damaged."""
    return gunzip(data, bounds.allowance(len(data))) if data.startswith(_GZIP_MAGIC) else data


def is_view(top: JsonFields) -> bool:
    """Views lie where tables do and name their metadata alike. Read as a table's, one would be an empty table."""
    return top.has("view-uuid") or top.has("versions")


def table_uuid(top: JsonFields) -> str | None:
    """In small letters, as two of them are compared."""
    uuid = top.optional_text("table-uuid")
    return uuid.lower() if uuid else None


def _location(top: JsonFields) -> str:
    text = top.text("location")
    try:
        Location.parse(text)
    except ValueError as exc:
        raise top.fault("location", f"is {exc}") from exc
    return text


def _snapshot(entry: JsonFields) -> SnapshotEntry:
    snapshot = SnapshotEntry(
        id=entry.integer("snapshot-id"),
        parent=entry.optional_integer("parent-snapshot-id"),
        timestamp_ms=entry.integer("timestamp-ms"),
        manifest_list=entry.optional_text("manifest-list") or None,
        manifests=entry.texts("manifests"),
        summary=entry.strings("summary"),
    )
    if snapshot.manifest_list is None and not entry.has("manifests"):
        raise entry.fault("manifest-list", "is missing, and there are no inline manifests either")
    try:
        _ = snapshot.committed_at
    except OverflowError as exc:
        raise entry.fault("timestamp-ms", "is not a time") from exc
    return snapshot


def _refs(top: JsonFields, current: int | None) -> tuple[Ref, ...]:
    refs = tuple(_ref(name, entry) for name, entry in top.members("refs"))
    main = next((ref for ref in refs if ref.name == MAIN), None)
    if main is None:
        # Files older than refs: main is wherever the table points.
        return refs if current is None else (Ref(name=MAIN, kind=RefKind.BRANCH, snapshot_id=current), *refs)
    if main.snapshot_id != current:
        raise top.fault("refs.main", f"is at snapshot {main.snapshot_id}, but current-snapshot-id is {current}")
    return refs


def _ref(name: str, entry: JsonFields) -> Ref:
    kind = entry.text("type").lower()
    if kind not in set(RefKind):
        raise entry.fault("type", f"is {kind!r}, neither branch nor tag")
    return Ref(
        name=name,
        kind=RefKind(kind),
        snapshot_id=entry.integer("snapshot-id"),
        min_snapshots_to_keep=entry.optional_integer("min-snapshots-to-keep"),
        max_snapshot_age_ms=entry.optional_integer("max-snapshot-age-ms"),
        max_ref_age_ms=entry.optional_integer("max-ref-age-ms"),
    )


def _statistics(top: JsonFields, name: str) -> tuple[StatisticsEntry, ...]:
    return tuple(
        StatisticsEntry(snapshot_id=entry.integer("snapshot-id"), path=entry.text("statistics-path"))
        for entry in top.objects(name)
    )


def _partition_fields(top: JsonFields) -> tuple[str, ...]:
    fields = [field for spec in top.objects("partition-specs") for field in spec.objects("fields")]
    fields.extend(top.objects("partition-spec"))  # version 1 keeps the current spec here as well
    return tuple(dict.fromkeys(field.text("name") for field in fields))


def _history(top: JsonFields, properties: dict[str, str]) -> HistoryProperties:
    def number(name: str) -> int | None:
        text = properties.get(f"{HISTORY_PROPERTIES}{name}")
        if text is None:
            return None
        try:
            return int(text)
        except ValueError as exc:
            raise top.fault(f"properties.{HISTORY_PROPERTIES}{name}", f"is {text!r}, not a whole number") from exc

    return HistoryProperties(
        max_snapshot_age_ms=number("max-snapshot-age-ms"),
        min_snapshots_to_keep=number("min-snapshots-to-keep"),
        max_ref_age_ms=number("max-ref-age-ms"),
    )
