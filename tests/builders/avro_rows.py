"""Random Avro schemas and rows of them as bytes: everything that the format allows, also what few writers write."""

from __future__ import annotations

import random
import struct
from typing import Any

from hypothesis import strategies as st

TAKEN = ("int", "long", "string", "bytes")
"""Types of which a column can be taken."""
_NUMBERS = (0, 1, -1, 63, -64, 64, 300, -(2**31), 2**31 - 1, 2**31, 2**62, -(2**63), 2**63 - 1)
_TEXTS = ("", "a", "s3://lake/ü/0.parquet", "\N{SNOWMAN}" * 50, "x" * 400)

_simple = st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string"])
_named = st.one_of(
    st.integers(1, 9).map(lambda size: {"type": "fixed", "size": size}),
    st.integers(1, 3).map(lambda count: {"type": "enum", "symbols": [f"S{index}" for index in range(count)]}),
)


def _record(fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "fields": [{"name": f"f{index}", "type": type_} for index, type_ in enumerate(fields)]}


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    plain = inner.filter(lambda type_: not isinstance(type_, list))
    return st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "map", "values": values}),
        st.lists(inner, min_size=1, max_size=4).map(_record),
        plain.map(lambda branch: ["null", branch]),
        plain.map(lambda branch: [branch, "null"]),
        st.lists(plain, min_size=1, max_size=3).map(lambda branches: ["null", *branches]),
    )


_types = st.recursive(_simple | _named, _deeper, max_leaves=8)
_texts = st.sampled_from(
    [{"type": "array", "items": "string"}, ["null", {"type": "array", "items": ["null", "string"]}]],
)
schemas = st.lists(_types | _texts | st.just("null"), min_size=1, max_size=6).map(
    lambda fields: _with_names(_record(fields))
)
"""Records whose named types all have names of their own."""


def _with_names(schema: Any) -> Any:
    names = iter(range(10**6))

    def named(part: Any) -> Any:
        if isinstance(part, list):
            return [named(branch) for branch in part]
        if not isinstance(part, dict):
            return part
        named_part = {key: named(value) if key in ("items", "values", "type") else value for key, value in part.items()}
        if "fields" in part:
            named_part["fields"] = [{**field, "type": named(field["type"])} for field in part["fields"]]
        if part["type"] in ("record", "enum", "fixed"):
            named_part["name"] = f"n{next(names)}"
        return named_part

    return named(schema)


def places(schema: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all fields that the fast reader can take."""
    if isinstance(schema, list):
        rest = [branch for branch in schema if branch != "null"]
        return places(rest[0], path) if len(rest) == 1 else []
    if isinstance(schema, dict) and schema["type"] == "record":
        return [place for field in schema["fields"] for place in places(field["type"], (*path, field["name"]))]
    if isinstance(schema, dict) and schema["type"] == "array":
        return [path] if schema["items"] in ("string", ["null", "string"]) else []
    return [path] if schema in TAKEN else []


def number(value: int, padding: int = 0) -> bytes:
    """A zig-zag varint; with padding, a longer spelling of the same number."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(min(padding, 10 - len(out))):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def encoded(schema: Any, dice: random.Random) -> bytes:
    """A random value of a type."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, list):
        index = dice.randrange(len(kind))
        return number(index, dice.choice((0, 0, 0, 1))) + encoded(kind[index], dice)
    match kind:
        case "record":
            return b"".join(encoded(field["type"], dice) for field in schema["fields"])
        case "array":
            return _items(dice, lambda: encoded(schema["items"], dice))
        case "map":
            return _items(dice, lambda: _sized(dice.choice(_TEXTS).encode()) + encoded(schema["values"], dice))
        case "fixed":
            return dice.randbytes(schema["size"])
        case "enum":
            return number(dice.randrange(len(schema["symbols"])))
        case _:
            return _simple_value(kind, dice)


def _simple_value(kind: str, dice: random.Random) -> bytes:
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([dice.randrange(2)])
        case "int":
            return number(dice.choice([value for value in _NUMBERS if -(2**31) <= value < 2**31]))
        case "long":
            return number(dice.choice(_NUMBERS), dice.choice((0, 0, 3)))
        case "float":
            return struct.pack("<f", dice.random())
        case "double":
            return struct.pack("<d", dice.random())
        case "bytes":
            return _sized(dice.randbytes(dice.choice((0, 1, 5, 200))))
        case _:
            return _sized(dice.choice(_TEXTS).encode())


def _sized(data: bytes) -> bytes:
    return number(len(data)) + data


def _items(dice: random.Random, item: Any) -> bytes:
    """Blocks of items, some of which say how many bytes they have."""
    out = b""
    for _ in range(dice.randrange(3)):
        items = [item() for _ in range(dice.randint(1, 3))]
        body = b"".join(items)
        out += number(-len(items)) + number(len(body)) if dice.random() < 0.5 else number(len(items))
        out += body
    return out + number(0)
