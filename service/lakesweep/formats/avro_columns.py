"""Some columns of Avro rows, fast: a writer's schema becomes a program that skips everything else. `_avro` runs it,
checks the structure of every byte it steps over, and stops at the first invalid one. The rest is left to fastavro, so
nothing here may guess: a type is compiled only where both readers give the same values. Like fastavro, it does not look
whether a skipped string is UTF-8."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.avro_bytes import ContainerError, Kind, Op, Reader

Path = tuple[str, ...]
"""Where a field is: its name and those of the records around it, outermost first."""

_DEEPEST = 32
"""Types inside types. Manifests have six."""
_LARGEST_FIXED = 1 << 20
_AT_HAND_BYTES = 256_000
"""Uncompressed, before they are read: few enough to stay in the processor's cache, enough to be worth the call."""

_SKIPPED: dict[str, list[int]] = {
    "null": [],
    "boolean": [Op.SKIP_BOOLEAN],
    "int": [Op.SKIP_NUMBER],
    "long": [Op.SKIP_NUMBER],
    "float": [Op.SKIP_FIXED, 4],
    "double": [Op.SKIP_FIXED, 8],
    "bytes": [Op.SKIP_BYTES],
    "string": [Op.SKIP_BYTES],
}
_TAKEN = {
    "int": (Kind.INT, pa.int32()),
    "long": (Kind.LONG, pa.int64()),
    "string": (Kind.BYTES, pa.string()),
    "bytes": (Kind.BYTES, pa.binary()),
}
_TIMES = {
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
_YEARS_1_TO_9999 = (-62_135_596_800, 253_402_300_800)
"""In seconds: the times that Python has, and so those that fastavro reads."""


class _NotCompiledError(Exception):
    """The schema has something that only fastavro reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How to read some columns of one writer's rows."""

    code: array[int]
    kinds: bytes
    columns: tuple[tuple[str, int, pa.DataType], ...]
    """What each is called, where `_avro` puts it, and what it holds."""

    def read(self, blocks: Iterable[tuple[bytes, int]]) -> dict[str, pa.Array] | None:
        """The columns of uncompressed blocks; None unless each has exactly so many rows and all is in order. Some
        blocks at a time: what was just uncompressed is still near the processor, and its memory is used again."""
        reader = Reader(self.code, self.kinds)
        at_hand: list[bytes] = []
        rows: list[int] = []
        size = 0
        for block, count in blocks:
            at_hand.append(block)
            rows.append(count)
            size += len(block)
            if size >= _AT_HAND_BYTES:
                if not reader.read(at_hand, rows):
                    return None
                at_hand, rows, size = [], [], 0
        if not reader.read(at_hand, rows):
            return None
        found = reader.finish()
        arrays = {name: _array(found, index, type_) for name, index, type_ in self.columns}
        return arrays if all(map(_is_sound, arrays.values())) else None


def compiled(schema: Any, places: Mapping[str, Sequence[str]]) -> Program | None:
    """A program for some columns, `{name: path}`, all of which the schema has. None where fastavro must read."""
    wanted = {tuple(path): name for name, path in places.items()}
    compiler = _Compiler(wanted)
    try:
        fastavro.parse_schema(schema)
        compiler.add(schema, ())
    except Exception:  # noqa: BLE001 - whatever is wrong with the schema, fastavro will say when it reads
        return None
    if set(compiler.columns) != set(places) or not compiler.code:
        return None
    return compiler.program()


class _Compiler:
    """Code for one type after another. Names stand for columns until all of them are known."""

    def __init__(self, wanted: Mapping[Path, str]) -> None:
        self._wanted = wanted
        self._depth = 0
        self.code: list[int | str] = []
        self.kinds: list[Kind] = []
        self.columns: dict[str, tuple[int, pa.DataType]] = {}

    def program(self) -> Program:
        code = array("i", [self.columns[part][0] if isinstance(part, str) else int(part) for part in self.code])
        columns = tuple((name, *self.columns[name]) for name in self._wanted.values())
        return Program(code=code, kinds=bytes(self.kinds), columns=columns)

    def add(self, schema: Any, path: Path | None) -> None:
        """Code for one value. `path` is None inside arrays and maps: no field there has one value per row."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NotCompiledError
        if isinstance(schema, list):
            self._union(schema, path)
        elif path is not None and path in self._wanted:
            self._take(schema, self._wanted[path])
        else:
            self._pass(schema, path)
        self._depth -= 1

    def _pass(self, schema: Any, path: Path | None) -> None:
        match schema:
            case str(name) | {"type": str(name)} if name in _SKIPPED:
                self.code += _SKIPPED[name]
            case {"type": "fixed", "size": int(size)} if 0 < size <= _LARGEST_FIXED:
                self.code += [Op.SKIP_FIXED, size]
            case {"type": "enum", "symbols": [*symbols]}:
                self.code += [Op.SKIP_ENUM, len(symbols)]
            case {"type": "record", "fields": [*fields]} if len({field["name"] for field in fields}) == len(fields):
                for field in fields:
                    self.add(field["type"], None if path is None else (*path, field["name"]))
            case {"type": "array", "items": items}:
                self._loop([Op.LOOP], items)
            case {"type": "map", "values": values}:
                self._loop([Op.LOOP], values, is_map=True)
            case _:  # or the name of a type that is defined elsewhere, perhaps of the one that we are in
                raise _NotCompiledError

    def _loop(self, begin: Sequence[int | str], item: Any, *, is_map: bool = False) -> None:
        """Code for the items of an array or of a map. Items without any bytes could be repeated without end."""
        self.code += [*begin, 0]
        body = len(self.code)
        if is_map:
            self.code.append(Op.SKIP_BYTES)
        self.add(item, None)
        if len(self.code) == body:
            raise _NotCompiledError
        self.code[body - 1] = len(self.code)

    def _union(self, branches: list[Any], path: Path | None) -> None:
        inside = [] if path is None else [name for place, name in self._wanted.items() if place[: len(path)] == path]
        if not branches or (inside and sum(branch != "null" for branch in branches) != 1):
            raise _NotCompiledError  # fastavro reports which branch has what
        start, ends = len(self.code), []
        self.code += [Op.UNION, len(branches), *([0] * len(branches))]
        for index, branch in enumerate(branches):
            self.code[start + 2 + index] = len(self.code)
            if branch == "null":
                for name in inside:
                    self.code += [Op.TAKE_NULL, name]
            else:
                self.add(branch, path)
            ends.append(len(self.code) + 1)
            self.code += [Op.JUMP, 0]
        for end in ends:
            self.code[end] = len(self.code)

    def _take(self, schema: Any, name: str) -> None:
        if name in self.columns:
            raise _NotCompiledError
        match schema:
            case {"type": "long", "logicalType": str(logical)} if logical in _TIMES:
                self._column(name, Kind.LONG, _TIMES[logical])
                self.code += [Op.TAKE, name]
            case {"logicalType": _}:
                raise _NotCompiledError
            case str(simple) | {"type": str(simple)} if simple in _TAKEN:
                self._column(name, *_TAKEN[simple])
                self.code += [Op.TAKE, name]
            case {"type": "array", "items": "string" | ["null", "string"] as items}:
                self._column(name, Kind.LIST, pa.list_(pa.string()))
                self.kinds.append(Kind.BYTES)
                self._take_list(name, items)
            case _:
                raise _NotCompiledError

    def _take_list(self, name: str, items: Any) -> None:
        column = self.columns[name][0] + 1
        self.code += [Op.TAKE_LIST, name, 0]
        body = len(self.code)
        if items == "string":
            self.code += [Op.TAKE, column]
        else:
            null, text, end = body + 4, body + 8, body + 10
            self.code += [Op.UNION, 2, null, text, Op.TAKE_NULL, column, Op.JUMP, end, Op.TAKE, column]
        self.code[body - 1] = len(self.code)

    def _column(self, name: str, kind: Kind, type_: pa.DataType) -> None:
        self.columns[name] = (len(self.kinds), type_)
        self.kinds.append(kind)


def check_no_empty_items(schema: Any) -> None:
    """Raise ContainerError for lists of items without bytes: there could be any number, and fastavro makes each."""
    try:
        _takes_nothing(schema, {})
    except RecursionError as exc:
        raise ContainerError("its schema is nested too deeply") from exc


def _takes_nothing(schema: Any, named: dict[str, bool]) -> bool:
    """Has a value of this type no bytes at all? `named` are the records met so far."""
    answer = False
    match schema:
        case [*branches]:  # which of them it is takes a byte
            for branch in branches:
                _takes_nothing(branch, named)
        case {"type": "record" | "error", "fields": [*fields]}:
            name = str(schema.get("name"))
            named[name] = True  # where it comes back to itself, nothing has been found yet
            inner = [_takes_nothing(field.get("type") if isinstance(field, dict) else None, named) for field in fields]
            answer = named[name] = all(inner)
        case {"type": "array", "items": items}:
            if _takes_nothing(items, named):
                raise ContainerError("its schema has an array whose items take no bytes")
        case {"type": "map", "values": values}:
            _takes_nothing(values, named)
        case {"type": "fixed", "size": size}:
            answer = bool(size == 0)
        case {"type": inner_type}:
            answer = _takes_nothing(inner_type, named)
        case str():
            answer = schema == "null" or named.get(schema, False)
    return answer


def is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """May values be cast without being read as something else? A path is text, and no number is one."""
    if found == wanted or pa.types.is_null(found):
        return True
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return is_alike(found.value_type, wanted.value_type)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found) or pa.types.is_int64(found))
    return any(family(found) and family(wanted) for family in (pa.types.is_integer, _TEXTS.__contains__))


def _array(found: Sequence[Any], index: int, type_: pa.DataType) -> pa.Array:
    length, nulls, parts = found[index]
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    children = [_array(found, index + 1, type_.value_type)] if pa.types.is_list(type_) else None
    return pa.Array.from_buffers(type_, length, buffers, nulls, children=children)


def _is_sound(column: pa.Array) -> bool:
    """Would fastavro take these values? Text must be UTF-8, and a time must have a date."""
    if pa.types.is_timestamp(column.type):
        ticks = 1000 if column.type.unit == "ms" else 1_000_000
        span = pc.min_max(column.cast(pa.int64()))
        least, most = span["min"].as_py(), span["max"].as_py()
        return least is None or _YEARS_1_TO_9999[0] * ticks <= least <= most < _YEARS_1_TO_9999[1] * ticks
    if pa.types.is_string(column.type) or pa.types.is_list(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return False
    return True
