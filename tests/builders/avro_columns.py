"""What test_avro_columns.py and its neighbours are made of."""

from __future__ import annotations

from typing import Any

from lakesweep.formats import avro
from lakesweep.formats.avro_columns import compiled

number = avro._long


def of(type_: Any, *more: Any) -> dict[str, Any]:
    """A record whose first field has a type."""
    fields = [{"name": f"f{index}", "type": one} for index, one in enumerate((type_, *more))]
    return {"type": "record", "name": "row", "fields": fields}


def read(schema: Any, block: bytes, rows: int, place: tuple[str, ...] = ("f0",)) -> list[Any] | None:
    program = compiled(schema, {"value": place})
    assert program is not None
    found = program.read([(block, rows)])
    return None if found is None else found["value"].to_pylist()
