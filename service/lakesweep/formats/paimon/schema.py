"""Table schemas: fields, partition keys, options; and the tables that are not ours to clean. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakesweep.formats.inflate import parse_json
from lakesweep.model.errors import Refused
from lakesweep.model.refusal import RefusalCode


class Kind(StrEnum):
    """Types that a partition key may have, by how they are laid out in a row."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    STRING = "STRING"
    BYTES = "BYTES"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    DECIMAL = "DECIMAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """A scalar type. `precision` and `scale` matter for timestamps and decimals only."""

    kind: Kind
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One partition key."""

    name: str
    type: FieldType


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One `schema/schema-<n>` file, as far as cleaning needs it."""

    id: int
    partition_keys: tuple[Field, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str]


_TYPE = re.compile(r"^([A-Z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*(|WITH LOCAL TIME ZONE|WITHOUT TIME ZONE)$")
_PLAIN = {
    "BOOLEAN": Kind.BOOLEAN, "TINYINT": Kind.TINYINT, "SMALLINT": Kind.SMALLINT, "INT": Kind.INT,
    "INTEGER": Kind.INT, "BIGINT": Kind.BIGINT, "FLOAT": Kind.FLOAT, "DOUBLE": Kind.DOUBLE, "DATE": Kind.DATE,
    "TIME": Kind.TIME, "STRING": Kind.STRING, "CHAR": Kind.STRING, "VARCHAR": Kind.STRING, "BYTES": Kind.BYTES,
    "BINARY": Kind.BYTES, "VARBINARY": Kind.BYTES,
}  # fmt: skip
_TIMESTAMP_PRECISION = 6
_DECIMAL_PRECISION = 10


def parse_type(text: Any) -> FieldType:
    """`INT NOT NULL`, `DECIMAL(20, 2)`, `TIMESTAMP(3) WITH LOCAL TIME ZONE`. Raises ValueError for anything else."""
    found = _TYPE.match(text.upper().removesuffix("NOT NULL").strip()) if isinstance(text, str) else None
    if not found:
        raise ValueError(f"not a scalar type: {text!r}")
    name, precision, scale, rest = found.groups()
    if name in _PLAIN:
        return FieldType(kind=_PLAIN[name])
    if name in ("DECIMAL", "NUMERIC", "DEC"):
        return FieldType(
            kind=Kind.DECIMAL, precision=int(precision or _DECIMAL_PRECISION), scale=int(scale) if scale else 0
        )
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        local = name == "TIMESTAMP_LTZ" or rest == "WITH LOCAL TIME ZONE"
        return FieldType(
            kind=Kind.TIMESTAMP_LTZ if local else Kind.TIMESTAMP,
            precision=int(precision) if precision else _TIMESTAMP_PRECISION,
        )
    raise ValueError(f"unknown type: {text!r}")


def parse_schema(data: bytes) -> TableSchema:
    """Decode a schema file. Raises ValueError when it is damaged, Refused when it is of an unknown kind."""
    document = parse_json(data)
    if not isinstance(document, dict) or "fields" not in document or "id" not in document:
        raise ValueError("not a table schema")
    types = {field["name"]: field["type"] for field in document["fields"]}
    keys = []
    for key in document.get("partitionKeys") or ():
        try:
            keys.append(Field(name=key, type=parse_type(types[key])))
        except (KeyError, ValueError) as exc:
            raise Refused(
                RefusalCode.UNSUPPORTED_PARTITION_KEY, f"partition key {key} has a type that cannot be decoded: {exc}"
            ) from exc
    return TableSchema(
        id=int(document["id"]),
        partition_keys=tuple(keys),
        primary_keys=tuple(document.get("primaryKeys") or ()),
        options={str(name): str(value) for name, value in (document.get("options") or {}).items()},
    )


_OURS = ("", "table", "materialized-table")


def check_ours(options: Mapping[str, str]) -> None:
    """Refuse tables whose files follow rules we do not know, or that another program cleans."""
    kind = options.get("type", "").strip().lower()
    if kind not in _OURS:
        raise Refused(RefusalCode.UNSUPPORTED_TABLE_TYPE, f"a table of type {kind} has no snapshots of its own")
    if options.get("metastore", "").strip().lower() == "rest":
        raise Refused(RefusalCode.REST_MANAGED, "a REST catalog manages this table: its server expires and cleans it")
    if _is_true(options.get("chain-table.enabled")):
        raise Refused(
            RefusalCode.CHAIN_TABLE, "a chain table reads files through several branches at once; it is not cleaned"
        )
    storage = options.get("metadata.iceberg.storage", "disabled").strip().lower()
    if storage != "disabled" or _is_true(options.get("metadata.iceberg-compatible")):  # the name of 0.9
        raise Refused(
            RefusalCode.ICEBERG_COMPATIBLE,
            "it has Iceberg metadata as well: Iceberg readers use files that Paimon's own metadata no longer names",
        )


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
