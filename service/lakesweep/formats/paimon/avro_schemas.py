"""Writing records in the shape that the table's own files have. Pure. A new file mirrors the container and the fields
of the files its records come from, so that every reader of the table can read it too and no field is lost, known to us
or not. A record that does not fit raises."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
from pyarrow import orc

from lakesweep.formats import avro, columnar

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
        raise ValueError(f"no place for the fields {', '.join(sorted(unknown))}")
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
        raise ValueError(f"no place for the fields {', '.join(sorted(unknown))}")
    return cast("Record", record)
