"""Bytes of manifest lists, manifests and index manifests to values. Pure, and guarded against short reads.

The container is told by its first bytes (Avro, ORC, Parquet), never by a name or an option; fields are taken by
name, so that files of older and newer writers read alike. Lengths and counts that something records must match.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc, parquet

from lakesweep.formats import avro
from lakesweep.model.errors import Refused

ADD, DELETE = 0, 1
APPENDED = 0
"""`_FILE_SOURCE` of files that a writer appended, as opposed to a compaction's."""

MANIFEST_VERSION = 2
INDEX_VERSION = 1

COLUMNS: Mapping[str, Sequence[str]] = {
    "version": ("_VERSION",),
    "kind": ("_KIND",),
    "partition": ("_PARTITION",),
    "bucket": ("_BUCKET",),
    "name": ("_FILE", "_FILE_NAME"),
    "level": ("_FILE", "_LEVEL"),
    "extra": ("_FILE", "_EXTRA_FILES"),
    "embedded": ("_FILE", "_EMBEDDED_FILE_INDEX"),
    "external": ("_FILE", "_EXTERNAL_PATH"),
    "source": ("_FILE", "_FILE_SOURCE"),
    "created": ("_FILE", "_CREATION_TIME"),
    "rows": ("_FILE", "_ROW_COUNT"),
    "size": ("_FILE", "_FILE_SIZE"),
}
"""What can be read of a manifest by `read_columns`: a short name, and where the file keeps it."""

IDENTITY = ("partition", "bucket", "level", "name", "extra", "embedded", "external")
"""An entry's identity: a DELETE takes back the ADD that agrees in all of these. Level belongs to it, because a
compaction may move a file to another level by DELETE and ADD of the same name."""

_TYPES = {
    "version": pa.int32(),
    "kind": pa.int32(),
    "partition": pa.binary(),
    "bucket": pa.int32(),
    "name": pa.string(),
    "level": pa.int32(),
    "extra": pa.list_(pa.string()),
    "embedded": pa.binary(),
    "external": pa.string(),
    "source": pa.int32(),
    "created": pa.timestamp("ms"),
    "rows": pa.int64(),
    "size": pa.int64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestMeta:
    """One manifest as its list describes it. `document` is the whole record, to be carried along."""

    name: str
    size_bytes: int
    added: int
    deleted: int
    sidecars: tuple[str, ...]
    document: Mapping[str, Any]

    @property
    def entries(self) -> int:
        """How many entries the manifest must have."""
        return self.added + self.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One live index file. `document` is the whole record."""

    name: str
    partition: bytes
    document: Mapping[str, Any]


def read_list(data: bytes) -> list[ManifestMeta]:
    """The manifests of one list, in order: the order decides which ADD a DELETE takes back."""
    metas = []
    for record in read_records(data):
        check_version(record.get("_VERSION"), MANIFEST_VERSION)
        metas.append(
            ManifestMeta(
                name=_text(record, "_FILE_NAME"),
                size_bytes=_number(record, "_FILE_SIZE"),
                added=_number(record, "_NUM_ADDED_FILES"),
                deleted=_number(record, "_NUM_DELETED_FILES"),
                sidecars=tuple(record.get("_EXTRA_FILES") or ()),
                document=record,
            )
        )
    return metas


def read_index(data: bytes) -> list[IndexEntry]:
    """The live index files of one index manifest."""
    entries = []
    for record in read_records(data):
        check_version(record.get("_VERSION"), INDEX_VERSION)
        if record.get("_KIND") == ADD:
            entry = IndexEntry(name=_text(record, "_FILE_NAME"), partition=record["_PARTITION"], document=record)
            entries.append(entry)
    return entries


def read_entries(data: bytes, *, expected: int | None = None) -> list[dict[str, Any]]:
    """Every entry of a manifest in full, to be written again."""
    records = read_records(data)
    _check_count(len(records), expected)
    for record in records:
        check_version(record.get("_VERSION"), MANIFEST_VERSION)
        if record.get("_KIND") not in (ADD, DELETE):
            raise ValueError(f"an entry of unknown kind {record.get('_KIND')!r}")
    return records


def read_columns(data: bytes, columns: Sequence[str], *, expected: int | None = None) -> pa.Table:
    """Some columns of a manifest, fast. Version and kind of every entry are always checked."""
    wanted = {name: COLUMNS[name] for name in dict.fromkeys(("version", "kind", *columns))}
    table = avro.read_columns(data, wanted) if data[:4] == avro.MAGIC else _dig_columns(_columnar(data), wanted)
    _check_count(table.num_rows, expected)
    table = table.cast(pa.schema([(name, _TYPES[name]) for name in wanted]))
    for version in pc.unique(table.column("version")).to_pylist():
        check_version(version, MANIFEST_VERSION)
    for kind in pc.unique(table.column("kind")).to_pylist():
        if kind not in (ADD, DELETE):
            raise ValueError(f"an entry of unknown kind {kind!r}")
    return table.select(list(columns))


def read_records(data: bytes) -> list[dict[str, Any]]:
    """All records of a container of any known kind. Raises ValueError when it is damaged."""
    if data[:4] == avro.MAGIC:
        return avro.read_records(data)
    return cast("list[dict[str, Any]]", _columnar(data).to_pylist())


def check_version(found: Any, known: int) -> None:
    """Entries of another version follow rules we do not know."""
    if found != known:
        raise Refused("unknown_manifest_version", f"an entry has version {found}; only {known} is understood")


def _columnar(data: bytes) -> pa.Table:
    try:
        if data[:3] == b"ORC":
            return orc.ORCFile(io.BytesIO(data)).read()
        if data[:4] == b"PAR1":
            return parquet.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as exc:
        raise ValueError(f"undecodable: {exc}") from exc
    raise ValueError(f"neither Avro, ORC nor Parquet (it begins with {data[:4].hex()})")


def _dig_columns(table: pa.Table, columns: Mapping[str, Sequence[str]]) -> pa.Table:
    arrays = {}
    for name, path in columns.items():
        array: pa.ChunkedArray | None = table.column(path[0]) if path[0] in table.column_names else None
        for part in path[1:]:
            if array is None or array.type.get_field_index(part) < 0:
                array = None
                break
            array = pc.struct_field(array, part)
        arrays[name] = pa.nulls(table.num_rows) if array is None else array
    return pa.table(arrays)


def _check_count(found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise ValueError(f"{found} entries, but its list records {expected}: it is cut off or not the same file")


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"an entry without {name}")
    return value


def _number(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int):
        raise ValueError(f"an entry without {name}")  # noqa: TRY004 - damage is a ValueError here
    return value
