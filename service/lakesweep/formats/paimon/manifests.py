"""Bytes of manifest lists, manifests and index manifests to values. Pure, and guarded against short reads. The
container is recognised by its first bytes (Avro, ORC, Parquet), never by a name or an option; fields are taken by name,
so that files of older and newer writers read alike. Lengths and counts that something records must match."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats import avro, columnar
from lakesweep.formats.avro_columns import is_alike
from lakesweep.model.errors import Refused
from lakesweep.model.refusal import RefusalCode

ADD, DELETE = 0, 1

MANIFEST_VERSION = 2
INDEX_VERSION = 1

_Columns = Mapping[str, tuple[Sequence[str], pa.DataType]]
_Projection = tuple[Mapping[str, Sequence[str]], pa.Schema]

COLUMNS: _Columns = {
    "version": (("_VERSION",), pa.int32()),
    "kind": (("_KIND",), pa.int32()),
    "partition": (("_PARTITION",), pa.binary()),
    "bucket": (("_BUCKET",), pa.int32()),
    "name": (("_FILE", "_FILE_NAME"), pa.string()),
    "level": (("_FILE", "_LEVEL"), pa.int32()),
    "extra": (("_FILE", "_EXTRA_FILES"), pa.list_(pa.string())),
    "embedded": (("_FILE", "_EMBEDDED_FILE_INDEX"), pa.binary()),
    "external": (("_FILE", "_EXTERNAL_PATH"), pa.string()),
    "source": (("_FILE", "_FILE_SOURCE"), pa.int32()),
    "created": (("_FILE", "_CREATION_TIME"), pa.timestamp("ms")),
    "rows": (("_FILE", "_ROW_COUNT"), pa.int64()),
    "size": (("_FILE", "_FILE_SIZE"), pa.int64()),
}
"""What can be read of a manifest by `read_columns`: a short name, where the file keeps it, and what it is."""

IDENTITY = ("partition", "bucket", "level", "name", "extra", "embedded", "external")
"""An entry's identity: a DELETE takes back the ADD that agrees in all of these. Level belongs to it, because a
compaction may move a file to another level by DELETE and ADD of the same name."""

_LIST_COLUMNS: _Columns = {
    "version": (("_VERSION",), pa.int32()),
    "name": (("_FILE_NAME",), pa.string()),
    "size": (("_FILE_SIZE",), pa.int64()),
    "added": (("_NUM_ADDED_FILES",), pa.int64()),
    "deleted": (("_NUM_DELETED_FILES",), pa.int64()),
    "sidecars": (("_EXTRA_FILES",), pa.list_(pa.string())),
}


def _places_and_types(columns: _Columns) -> _Projection:
    places = {name: place for name, (place, _) in columns.items()}
    return places, pa.schema({name: type_ for name, (_, type_) in columns.items()})


_LIST = _places_and_types(_LIST_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestMeta:
    """One manifest as its list describes it."""

    name: str
    size_bytes: int
    added: int
    deleted: int
    sidecars: tuple[str, ...]

    @property
    def entries(self) -> int:
        return self.added + self.deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRecord(ManifestMeta):
    """The same with its whole record, to be carried along into the next list."""

    document: Mapping[str, Any]


Known = dict[tuple[Any, ...], ManifestMeta]
"""Manifests that were read before, by all that is known of each: lists share most of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One live index file. `document` is the whole record."""

    name: str
    partition: bytes
    document: Mapping[str, Any]


def read_list(data: bytes, known: Known | None = None) -> list[ManifestMeta]:
    """The manifests of one list, in order: the order decides which ADD a DELETE takes back."""
    table = _read_table(data, *_LIST)
    _check_versions(table)
    for name in ("name", "size", "added", "deleted"):
        if table.column(name).null_count:
            raise ValueError(f"an entry without {_LIST_COLUMNS[name][0][0]}")
    sidecars = [tuple(names or ()) for names in table.column("sidecars").to_pylist()]
    numbers = (table.column(name).to_pylist() for name in ("size", "added", "deleted"))
    known = {} if known is None else known
    return [
        known.get(row) or known.setdefault(row, _meta(*row))
        for row in zip(table.column("name").to_pylist(), *numbers, sidecars, strict=True)
    ]


def _meta(name: str, size: int, added: int, deleted: int, sidecars: tuple[str | None, ...]) -> ManifestMeta:
    if not name:
        raise ValueError("an entry without _FILE_NAME")
    named = tuple(sidecar for sidecar in sidecars if sidecar)
    if len(named) != len(sidecars):
        raise ValueError("an extra file without a name")
    return ManifestMeta(name=name, size_bytes=size, added=added, deleted=deleted, sidecars=named)


def read_list_records(data: bytes) -> list[ManifestRecord]:
    pairs = zip(read_list(data), read_records(data), strict=True)
    return [ManifestRecord(**asdict(meta), document=record) for meta, record in pairs]


def read_index(data: bytes) -> list[IndexEntry]:
    entries = []
    for record in read_records(data):
        check_version(record.get("_VERSION"), INDEX_VERSION)
        _check_kind(record.get("_KIND"))
        if record["_KIND"] == ADD:
            entry = IndexEntry(name=_text(record, "_FILE_NAME"), partition=record["_PARTITION"], document=record)
            entries.append(entry)
    return entries


def read_entries(data: bytes, *, expected: int | None = None) -> list[dict[str, Any]]:
    records = read_records(data)
    _check_count(len(records), expected)
    for record in records:
        check_version(record.get("_VERSION"), MANIFEST_VERSION)
        _check_kind(record.get("_KIND"))
    return records


def read_columns(data: bytes, columns: Sequence[str], *, expected: int | None = None) -> pa.Table:
    """Some columns of a manifest, fast. Version and kind of every entry are always checked."""
    table = _read_table(data, *_projection(tuple(columns)))
    _check_count(table.num_rows, expected)
    _check_versions(table)
    for kind in table.column("kind").unique().to_pylist():
        _check_kind(kind)
    return table.select(list(columns))


CHANGE_OF_PARTITION = ("kind", "partition", "created", "size")
"""What must be read of a manifest for `by_partition`."""


def by_partition(table: pa.Table) -> pa.Table:
    """Files and bytes added minus deleted, the newest file and whether one has no date, for each partition."""
    sign = signs(table)
    return (
        table.select(["partition", "created"])
        .append_column("files", sign)
        .append_column("bytes", pc.multiply(table.column("size"), sign))
        .append_column("undated", pc.is_null(table.column("created")))
        .group_by("partition")
        .aggregate([("files", "sum"), ("bytes", "sum"), ("created", "max"), ("undated", "any")])
        .rename_columns(["partition", "files", "bytes", "created", "undated"])
    )


def signs(table: pa.Table) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(table.column("kind"), ADD), 1, -1)


def identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identity of a row of `read_columns`. Null and empty are both no extra files."""
    return tuple(tuple(row[column] or ()) if column == "extra" else row[column] for column in IDENTITY)


@functools.cache
def _projection(columns: tuple[str, ...]) -> _Projection:
    """Where these columns of a manifest are and what they hold; making that up costs as much as reading ten rows."""
    names = tuple(dict.fromkeys(("version", "kind", *columns)))
    return _places_and_types({name: COLUMNS[name] for name in names})


def _read_table(data: bytes, wanted: Mapping[str, Sequence[str]], schema: pa.Schema) -> pa.Table:
    table = avro.read_columns(data, wanted) if data[:4] == avro.MAGIC else _nested_columns(_columnar(data), wanted)
    if table.schema == schema:
        return table
    for field, expected in zip(table.schema, schema, strict=True):
        if not is_alike(field.type, expected.type):
            raise ValueError(f"its {'.'.join(wanted[field.name])} is of type {field.type}, not {expected.type}")
    return table.cast(schema)


def _check_versions(table: pa.Table) -> None:
    for version in table.column("version").unique().to_pylist():
        check_version(version, MANIFEST_VERSION)


def read_records(data: bytes) -> list[dict[str, Any]]:
    """All records of a container of any known kind. Raises ValueError when it is damaged."""
    if data[:4] == avro.MAGIC:
        return avro.read_records(data)
    return cast("list[dict[str, Any]]", _columnar(data).to_pylist())


def check_version(found: Any, known: int) -> None:
    """Entries of another version follow rules we do not know."""
    if found != known:
        raise Refused(RefusalCode.UNKNOWN_MANIFEST_VERSION, f"an entry has version {found}; only {known} is supported")


def _check_kind(kind: Any) -> None:
    if kind not in (ADD, DELETE):
        raise ValueError(f"an entry of unknown kind {kind!r}")


def _columnar(data: bytes) -> pa.Table:
    kind = "orc" if data[:3] == b"ORC" else "parquet" if data[:4] == b"PAR1" else None
    if kind is None:
        raise ValueError(f"neither Avro, ORC nor Parquet (it begins with {data[:4].hex()})")
    try:
        with columnar.opened(data, kind) as file:
            return file.read()
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise ValueError(f"undecodable: {exc}") from exc


def _nested_columns(table: pa.Table, columns: Mapping[str, Sequence[str]]) -> pa.Table:
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
        raise ValueError(f"{found} entries, but its list records {expected}: it is truncated or not the same file")


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"an entry without {name}")
    return value
