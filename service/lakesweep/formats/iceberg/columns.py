"""Columns of an Avro container, picked by Iceberg field id and never by name.

The header's schema is rewritten before anything reads the rows: names become ours, attributes and logical types
go, fields without any bytes (the partition of an unpartitioned table) go, and nested records are laid flat. Avro
encodes all of these alike, so the rows stay the same, while the fast reader (DataFusion) can skip whatever is not
asked for. fastavro, which reads the nested form, is the reference and reads small or odd files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakesweep.formats import avro


class FieldMissing(ValueError):
    """The file's schema has no field of a required id."""


def read(data: bytes, wanted: Mapping[int, pa.Field]) -> pa.Table:
    """One row per record, one column per wanted field id; null where the file's schema lacks an optional one.

    Raises avro.ContainerError or FieldMissing. The number of rows is exactly what the block headers promise.
    """
    container = avro.walk(data)
    schema = _plain(container.metadata["avro.schema"], tuple(wanted.items()))
    for field_id, field in wanted.items():
        if not field.nullable and field_id not in schema.found:
            raise FieldMissing(f"no field with id {field_id} ({field.name})")
    blocks = avro.inflate(data, container)
    table = read_fast(blocks, container.rows, schema) if avro.is_large(blocks) else None
    if table is None:
        table = read_slowly(blocks, container.rows, schema)
    if table.num_rows != container.rows:
        raise avro.ContainerError(f"{table.num_rows} rows decoded, the block headers promise {container.rows}")
    return _typed(table, wanted)


def read_fast(blocks: Sequence[bytes], rows: int, schema: Plain) -> pa.Table | None:
    """By DataFusion; None for what it cannot read, or where a nested record may be null and so cannot be laid flat."""
    if schema.flat is None:
        return None
    wanted = {field.name: field.name for field in schema.found.values()}
    return avro.decode_columns(blocks, schema.flat, rows, wanted)


def read_slowly(blocks: Sequence[bytes], rows: int, schema: Plain) -> pa.Table:
    """By fastavro, row by row."""
    records = avro.decode_rows(blocks, schema.nested, rows, schema.wanted)
    return pa.table(
        {
            field.name: pa.array(avro.values(records, schema.paths[field.name]), field.type)
            for field in schema.found.values()
        }
    )


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


@functools.lru_cache(maxsize=64)
def _plain(schema: bytes, wanted: tuple[tuple[int, pa.Field], ...]) -> Plain:
    """A writer's manifests share their schema, and taking it apart costs as much as decoding ten rows."""
    return Plain(json.loads(schema), dict(wanted))


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
        self.wanted = _pruned(self.nested, self.paths)
        """The nested form with only what was found."""
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


def _pruned(schema: Any, names: Collection[str]) -> Any:
    """A type without the fields of other names, and without the records that are left empty."""
    match schema:
        case [*branches]:
            return [_pruned(branch, names) for branch in branches]
        case {"type": "record", "fields": fields}:
            inner = [{**field, "type": _pruned(field["type"], names)} for field in fields]
            kept = [field for field in inner if field["name"] in names or _has_fields(field["type"])]
            return {**schema, "fields": kept}
        case _:
            return schema


def _has_fields(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_has_fields(branch) for branch in schema)
    return isinstance(schema, dict) and bool(schema.get("fields"))


def _flatten(record: dict[str, Any]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    for field in record["fields"]:
        inner = field["type"]
        if isinstance(inner, dict) and inner["type"] == "record":
            fields.extend(_flatten(inner)["fields"])
        else:
            fields.append(field)
    return {"type": "record", "name": record["name"], "fields": fields}
