"""New manifests and lists on their way into a snapshot. Keeps track of everything written, so that it can go again. A
new file mirrors the container and the fields of the files its records come from, so that every reader of the table can
read it too and no field is lost, known to us or not. A record that does not fit raises. Minimum and maximum in
statistics are of the values by their type, never of the bytes: readers skip manifests by them, and a wrong range
silently hides rows."""

from __future__ import annotations

import asyncio
import io
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
from pyarrow import orc

from lakesweep.formats import avro, columnar
from lakesweep.formats.paimon import manifests
from lakesweep.formats.paimon.binaryrow import Value, decode_row, encode_row, sort_key
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.merge import Entry
from lakesweep.formats.paimon.options import ManifestOptions
from lakesweep.formats.paimon.schema import FieldType, Kind
from lakesweep.ports.storage import Writer

Record = dict[str, Any]
_AVRO_CODECS = {"zstd": "zstandard", "none": "null", "null": "null", "snappy": "zstandard", "lz4": "zstandard"}
"""What `manifest.compression` means in Avro. Readers take any codec; where we cannot write one, zstandard stands in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The container and the fields of a file: an Avro record schema, or the Arrow schema of an ORC file."""

    schema: Any

    @property
    def is_avro(self) -> bool:
        return isinstance(self.schema, dict)


def shape_of(data: bytes) -> Shape:
    """The shape of an existing file. Raises ValueError for a container we cannot write."""
    if data[:4] == avro.MAGIC:
        return Shape(schema=_record_schema(avro.walk(data).schema))
    if data[:3] == b"ORC":
        with columnar.opened(data, "orc") as file:
            return Shape(schema=file.schema)
    raise ValueError("neither Avro nor ORC")


def joined(shapes: Sequence[Shape]) -> Shape:
    """All fields of all shapes, in the container of the first. Raises ValueError when they do not go together."""
    first = shapes[0]
    if any(shape.is_avro != first.is_avro for shape in shapes):
        raise ValueError("the table has Avro and ORC manifests side by side")
    if not first.is_avro:
        return Shape(schema=pa.unify_schemas([shape.schema for shape in shapes]))
    schema = first.schema
    for shape in shapes[1:]:
        schema = _joined_records(schema, shape.schema)
    return Shape(schema=schema)


def write(shape: Shape, records: Iterable[Mapping[str, Any]], *, compression: str = "zstd") -> bytes:
    if shape.is_avro:
        rows = [_fitted(record, shape.schema) for record in records]
        return avro.write(shape.schema, rows, codec=_AVRO_CODECS.get(compression, "zstandard"))
    table = pa.Table.from_pylist([_checked(record, shape.schema) for record in records], schema=shape.schema)
    sink = io.BytesIO()
    orc.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def field_names(shape: Shape) -> tuple[str, ...]:
    if shape.is_avro:
        return tuple(field["name"] for field in shape.schema["fields"])
    return tuple(shape.schema.names)


def _record_schema(schema: Any) -> dict[str, Any]:
    """Writers before 1.0 put the record into a union with null; readers take both."""
    if isinstance(schema, list):
        schema = next((branch for branch in schema if isinstance(branch, dict)), None)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its rows are not records")
    return schema


def _joined_records(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    fields = {field["name"]: field for field in one["fields"]}
    for field in other["fields"]:
        known = fields.get(field["name"])
        if known is None:
            fields[field["name"]] = field if _nullable(field["type"]) else {**field, "type": ["null", field["type"]]}
        elif _is_record(known["type"]) and _is_record(field["type"]):
            inner = _joined_records(_record_schema(known["type"]), _record_schema(field["type"]))
            fields[field["name"]] = {**known, "type": ["null", inner] if _nullable(known["type"]) else inner}
    return {**one, "fields": list(fields.values())}


def _is_record(type_: Any) -> bool:
    try:
        _record_schema(type_)
    except ValueError:
        return False
    return True


def _nullable(type_: Any) -> bool:
    return isinstance(type_, list) and "null" in type_


def _fitted(record: Mapping[str, Any], schema: Mapping[str, Any]) -> Record:
    """The record with every field of the schema. Fields it lacks are null; fields the schema lacks are an error."""
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    if unknown := record.keys() - fields.keys():
        raise ValueError(f"the manifest's schema lacks the fields {', '.join(sorted(unknown))}")
    return {name: _value(record.get(name), type_) for name, type_ in fields.items()}


def _value(value: Any, type_: Any) -> Any:
    if isinstance(value, Mapping) and _is_record(type_):
        return _fitted(value, _record_schema(type_))
    if isinstance(value, datetime):
        # Writers store their wall clock as if it were UTC; a zone of ours must not get in between.
        return int(value.replace(tzinfo=UTC).timestamp() * 1000 + 0.5)
    return value


def _checked(record: Mapping[str, Any], schema: pa.Schema) -> Record:
    if unknown := record.keys() - set(schema.names):
        raise ValueError(f"the manifest's schema lacks the fields {', '.join(sorted(unknown))}")
    return cast("Record", record)


def list_record(
    name: str, size_bytes: int, entries: Sequence[Mapping[str, Any]], types: Sequence[FieldType], fields: Iterable[str]
) -> dict[str, Any]:
    kinds = [entry["_KIND"] for entry in entries]
    files = [entry["_FILE"] for entry in entries]
    record: dict[str, Any] = {
        "_VERSION": manifests.MANIFEST_VERSION,
        "_FILE_NAME": name,
        "_FILE_SIZE": size_bytes,
        "_NUM_ADDED_FILES": kinds.count(manifests.ADD),
        "_NUM_DELETED_FILES": kinds.count(manifests.DELETE),
        "_PARTITION_STATS": partition_stats([entry["_PARTITION"] for entry in entries], types),
        "_SCHEMA_ID": max(file["_SCHEMA_ID"] for file in files),
    }
    buckets, levels = [entry["_BUCKET"] for entry in entries], [file["_LEVEL"] for file in files]
    low, high = _row_ids(files)
    totals = {entry["_TOTAL_BUCKETS"] for entry in entries}
    optional = {
        "_MIN_BUCKET": min(buckets),
        "_MAX_BUCKET": max(buckets),
        "_MIN_LEVEL": min(levels),
        "_MAX_LEVEL": max(levels),
        "_MIN_ROW_ID": low,
        "_MAX_ROW_ID": high,
        "_TOTAL_BUCKETS": totals.pop() if len(totals) == 1 else None,
    }
    present = set(fields)
    return record | {field: value for field, value in optional.items() if field in present}


def partition_stats(partitions: Iterable[bytes], types: Sequence[FieldType]) -> dict[str, Any]:
    rows = [(decode_row(raw, types), count) for raw, count in Counter(partitions).items()]
    low: list[Value] = []
    high: list[Value] = []
    nulls: list[int] = []
    for index, type_ in enumerate(types):
        values = [row[index] for row, _ in rows if row[index] is not None]
        known = bool(values) and type_.kind is not Kind.BYTES  # no range for bytes, as in Java
        low.append(min(values, key=sort_key) if known else None)
        high.append(max(values, key=sort_key) if known else None)
        nulls.append(sum(count for row, count in rows if row[index] is None))
    return {"_MIN_VALUES": encode_row(low, types), "_MAX_VALUES": encode_row(high, types), "_NULL_COUNTS": nulls}


def _row_ids(files: Sequence[Mapping[str, Any]]) -> tuple[int | None, int | None]:
    first = [file.get("_FIRST_ROW_ID") for file in files]
    if not files or any(value is None for value in first):
        return None, None
    starts = [(file["_FIRST_ROW_ID"], file["_ROW_COUNT"]) for file in files]
    return min(start for start, _ in starts), max(start + rows - 1 for start, rows in starts)


class CommitDraft:
    """The files of one commit. Names are new, so nothing existing is ever touched."""

    def __init__(
        self,
        files: TableFiles,
        writer: Writer,
        *,
        types: Sequence[FieldType],
        list_shape: Shape,
        options: ManifestOptions,
    ) -> None:
        self.token = str(uuid.uuid4())
        self.written: list[str] = []
        self._files = files
        self._writer = writer
        self._types = types
        self._list_shape = list_shape
        self._list_fields = field_names(list_shape)
        self._options = options

    async def write_list(self, records: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
        return await self._write("manifest-list", self._list_shape, records)

    async def write_index(self, shape: Shape, records: Sequence[Mapping[str, Any]]) -> str:
        name, _ = await self._write("index-manifest", shape, records)
        return name

    async def write_manifests(
        self, shape: Shape, entries: AsyncIterator[Entry], *, bytes_per_entry: float
    ) -> list[dict[str, Any]]:
        """As many manifests of about the target size as needed; their records for a list."""
        per_file = max(1, int(self._options.target_size / max(1.0, bytes_per_entry)))
        records: list[dict[str, Any]] = []
        waiting: list[Entry] = []
        async for entry in entries:
            waiting.append(entry)
            if len(waiting) >= per_file:
                records.append(await self._write_manifest(shape, waiting))
                waiting = []
        if waiting:
            records.append(await self._write_manifest(shape, waiting))
        return records

    async def _write_manifest(self, shape: Shape, entries: list[Entry]) -> dict[str, Any]:
        name, size = await self._write("manifest", shape, entries)
        return list_record(name, size, entries, self._types, self._list_fields)

    async def _write(self, prefix: str, shape: Shape, records: Iterable[Mapping[str, Any]]) -> tuple[str, int]:
        name = f"{prefix}-{self.token}-{len(self.written)}"
        data = await asyncio.to_thread(write, shape, records, compression=self._options.compression)
        location = self._files.manifest(name)
        self.written.append(location.raw)  # before the write: a write that failed may have left something
        await self._writer.put(location, data, create_only=False)  # the name is new, and a retry may repeat it
        return name, len(data)
