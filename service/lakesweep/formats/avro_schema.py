"""Check an Avro schema before anything is read with it: it must not be deep or recursive, and its size is bounded.
Decoders written in C recurse for every level, so a recursive schema lets a few bytes exhaust the stack, which ends the
process; and types that contain earlier ones twice double with every step. No table's metadata is like that."""

from __future__ import annotations

from typing import Any

from lakesweep.formats.avro_bytes import ContainerError

_DEEPEST = 64
"""Manifests of Iceberg and Paimon have about ten levels."""
_LARGEST = 1_000_000
"""Values in one row; a table of ten thousand columns has some ten thousand."""

_PRIMITIVE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_BUILT_IN = _PRIMITIVE | {"record", "error", "request", "array", "map", "enum", "fixed", "union"}


def check_schema(schema: Any) -> None:
    _Schema().size(schema, 0)


class _Schema:
    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        """Of named types that are complete."""
        self._open: list[str] = []
        """Named types that are being looked at."""

    def size(self, schema: Any, depth: int) -> int:
        """How many values one such value may consist of, where lists and maps count once."""
        if depth > _DEEPEST:
            raise ContainerError("its schema is nested too deeply")
        if isinstance(schema, str):
            return self._named(schema)
        if isinstance(schema, list):
            return self._all(schema, depth)
        if not isinstance(schema, dict):
            return 1  # no schema at all: its reader will say so
        return self._declared(schema, depth)

    def _declared(self, schema: dict[str, Any], depth: int) -> int:
        fields = schema.get("fields")
        held = [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
        held += [schema[name] for name in ("items", "values", "type") if name in schema]
        name = _short(schema["name"]) if "name" in schema else None
        if name is None:
            return self._all(held, depth)
        self._open.append(name)
        total = self._all(held, depth)
        self._open.pop()
        self._sizes[name] = max(total, self._sizes.get(name, 0))
        return total

    def _all(self, held: list[Any], depth: int) -> int:
        total = 1
        for one in held:
            total += self.size(one, depth + 1)
            if total > _LARGEST:
                raise ContainerError("its schema is too large")
        return total

    def _named(self, name: str) -> int:
        """By its last part, whatever its namespace. Paimon's records are `….record`: `record` alone is not a name."""
        short = _short(name)
        if short in self._open and name not in _BUILT_IN:
            raise ContainerError(f"its schema has a record {short} that contains itself")
        return 1 if name in _BUILT_IN else self._sizes.get(short, 1)


def _short(name: Any) -> str:
    return str(name).rpartition(".")[2]
