"""Columns of an Avro container, picked by Iceberg field id and never by name.

The header's schema is rewritten before anything reads the rows: names become ours, attributes and logical types
go, fields without any bytes (the partition of an unpartitioned table) go, and nested records are laid flat. Avro
encodes all of these alike, so the rows stay the same, while the fast reader (DataFusion) can skip whatever is not
asked for. fastavro, which reads the nested form in full, is the reference and reads small or odd files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from datafusion import col

from lakesweep.formats import avro

FAST_FROM_ROWS = 40
"""Below this the fixed cost of the fast reader is larger than what it saves."""


class FieldMissing(ValueError):
    """The file's schema has no field of a required id."""


def read(data: bytes, wanted: Mapping[int, pa.Field]) -> pa.Table:
    """One row per record, one column per wanted field id; null where the file's schema lacks an optional one.

    Raises avro.ContainerError or FieldMissing. The number of rows is exactly what the block headers promise.
    """
    container = avro.walk(data)
    schema = Plain(container.schema, wanted)
    for field_id, field in wanted.items():
        if not field.nullable and field_id not in schema.found:
            raise FieldMissing(f"no field with id {field_id} ({field.name})")
    blocks = avro.inflate(data, container)
    table = read_fast(blocks, container.rows, schema) if container.rows >= FAST_FROM_ROWS else None
    if table is None:
        table = read_slowly(blocks, container.rows, schema)
    if table.num_rows != container.rows:
        raise avro.ContainerError(f"{table.num_rows} rows decoded, the block headers promise {container.rows}")
    return _typed(table, wanted)


def read_fast(blocks: Sequence[bytes], rows: int, schema: Plain) -> pa.Table | None:
    """By DataFusion; None for what it cannot read, or where a nested record may be null and so cannot be laid flat."""
    if schema.flat is None:
        return None
    return avro.decode_columns(blocks, schema.flat, rows, [col(field.name) for field in schema.found.values()])


def read_slowly(blocks: Sequence[bytes], rows: int, schema: Plain) -> pa.Table:
    """By fastavro, every field of every row."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.paths}
    for record in avro.decode_rows(b"".join(blocks), schema.nested, rows):
        for name, path in schema.paths.items():
            columns[name].append(_dig(record, path))
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema.found.values()})


def _dig(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if record is None:
            return None
        record = record[name]
    return record


def _typed(table: pa.Table, wanted: Mapping[int, pa.Field]) -> pa.Table:
    columns = []
    for field in wanted.values():
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        if column.null_count and not field.nullable:
            raise avro.ContainerError(f"{column.null_count} rows have no {field.name}")
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=pa.schema(list(wanted.values())))


class Plain:
    """A writer's schema, rewritten: `nested` as it was, `flat` with records laid open where that is possible."""

    def __init__(self, schema: Any, wanted: Mapping[int, pa.Field]) -> None:
        self._wanted = wanted
        self._unused = 0
        self.found: dict[int, pa.Field] = {}
        self.paths: dict[str, tuple[str, ...]] = {}
        """Where each found field is in the nested form."""
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise avro.ContainerError("its rows are not records")
        self.nested: dict[str, Any] = self._record(schema, ())
        flat = _flatten(self.nested)
        names = {field["name"] for field in flat["fields"]}
        self.flat = flat if all(name in names for name in self.paths) else None

    def _record(self, schema: dict[str, Any], path: tuple[str, ...] | None) -> dict[str, Any]:
        """`path` is None inside lists and maps: no field there has one value per row."""
        fields = []
        for field in schema.get("fields") or ():
            name = self._name(field.get("field-id"), path)
            plain = self._type(field.get("type"), None if path is None else (*path, name))
            if plain != _NOTHING:
                fields.append({"name": name, "type": plain})
        return {"type": "record", "name": schema.get("name") or f"record_{self._unused}", "fields": fields}

    def _name(self, field_id: Any, path: tuple[str, ...] | None) -> str:
        if path is not None and field_id in self._wanted and field_id not in self.found:
            field = self._wanted[field_id]
            self.found[field_id] = field
            self.paths[field.name] = (*path, field.name)
            return str(field.name)
        self._unused += 1
        return f"unused_{self._unused}"

    def _type(self, schema: Any, path: tuple[str, ...] | None) -> Any:
        plain: Any
        match schema:
            case str():
                plain = schema
            case [*branches]:
                plain = [self._type(branch, path) for branch in branches]
            case {"type": "record"}:
                record = self._record(schema, path)
                plain = record if record["fields"] else _NOTHING
            case {"type": "array", "items": items}:
                plain = {"type": "array", "items": self._type(items, None)}
            case {"type": "map", "values": values}:
                plain = {"type": "map", "values": self._type(values, None)}
            case {"type": "fixed" | "enum"}:
                plain = {key: schema[key] for key in ("type", "name", "size", "symbols") if key in schema}
            case {"type": inner}:
                plain = self._type(inner, path)
            case _:
                raise avro.ContainerError(f"unknown type in its schema: {schema!r}")
        return plain


_NOTHING = "null"
"""The type of a field that takes no bytes at all."""


def _flatten(record: dict[str, Any]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    for field in record["fields"]:
        inner = field["type"]
        if isinstance(inner, dict) and inner["type"] == "record":
            fields.extend(_flatten(inner)["fields"])
        else:
            fields.append(field)
    return {"type": "record", "name": record["name"], "fields": fields}
