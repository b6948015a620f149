"""Columns of an Avro container, picked by Iceberg field id and never by name. The header's schema is rewritten before
anything reads the rows: names become ours, attributes and logical types go, and fields without any bytes (the partition
of an unpartitioned table) go. Avro encodes all of these alike, so the rows stay the same. The fast reader skips
whatever is not requested; fastavro is the reference, and reads odd files."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakesweep.formats import avro
from lakesweep.formats.avro_columns import compiled, is_alike
from lakesweep.formats.inflate import parse_json


class FieldMissing(ValueError):
    """The file's schema has no field of a required id."""


def read(data: bytes, wanted: Mapping[int, pa.Field]) -> pa.Table:
    """One row per record, one column per wanted field id; null where the file's schema lacks an optional one. Raises
    avro.ContainerError or FieldMissing. The number of rows is exactly what the block headers claim."""
    container = avro.walk(data)
    schema = _plain(container.metadata["avro.schema"], tuple(wanted.items()))
    for field_id, field in wanted.items():
        if not field.nullable and field_id not in schema.found:
            raise FieldMissing(f"no field with id {field_id} ({field.name})")
    found = avro.read_fast(data, container, schema.program)
    if found is None:
        found = read_slowly(avro.inflate(data, container), container.rows, schema)
    return _typed(found, container.rows, wanted)


def read_slowly(blocks: Sequence[bytes], rows: int, schema: Plain) -> dict[str, pa.Array]:
    records = avro.decode_rows(blocks, schema.nested, rows, schema.wanted)
    return {
        field.name: pa.array(avro.values(records, schema.paths[field.name]), field.type)
        for field in schema.found.values()
    }


def _typed(found: Mapping[str, pa.Array], rows: int, wanted: Mapping[int, pa.Field]) -> pa.Table:
    columns = []
    for field in wanted.values():
        if field.name not in found:
            columns.append(pa.nulls(rows, field.type))
            continue
        column = found[field.name]
        if len(column) != rows:
            raise avro.ContainerError(f"{len(column)} rows decoded, the block headers claim {rows}")
        if column.null_count and not field.nullable:
            raise avro.ContainerError(f"{column.null_count} rows have no {field.name}")
        if not is_alike(column.type, field.type):
            raise avro.ContainerError(f"its {field.name} is of type {column.type}, not {field.type}")
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=pa.schema(list(wanted.values())))


@functools.lru_cache(maxsize=64)
def _plain(schema: bytes, wanted: tuple[tuple[int, pa.Field], ...]) -> Plain:
    """A writer's manifests share their schema, and taking it apart costs as much as decoding ten rows."""
    try:
        return Plain(parse_json(schema), dict(wanted))
    except (AttributeError, TypeError) as exc:
        raise avro.ContainerError(f"its schema is malformed ({type(exc).__name__}: {exc})") from exc


class Plain:
    """A writer's schema, rewritten, and how to read what was found in it."""

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
        self.program = compiled(self.nested, self.paths)

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
        if path is not None and type(field_id) is int and field_id in self._wanted:
            if field_id in self.found:
                raise avro.ContainerError(f"two fields have the id {field_id}")
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
