"""An object is known if the very same object is on the other side, however both sides are cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.cleanup import plan_file

# By their bytes they sort otherwise than in UTF-16: the last two change places.
PATHS = ("s3://b/t/a", "s3://b/t/a/b", "s3://b/t/ä", "s3://b/t/\uffee", "s3://b/t/😀")
KNOWN_SCHEMA = plan_file.PLAN_SCHEMA.append(pa.field("number", pa.int64()))
OBJECTS = st.fixed_dictionaries(
    {
        "stage": st.integers(0, 1),
        "size_bytes": st.integers(0, 1),
        "modified_at": st.none() | st.integers(0, 1),
        "etag": st.sampled_from([None, "e", "f"]),
    }
)
FIELDS = st.sampled_from([(), ("stage",), ("size_bytes",), ("modified_at",), ("etag",)])
SIDES = st.dictionaries(
    st.sampled_from(PATHS), st.tuples(st.none() | OBJECTS, st.none() | OBJECTS) | st.tuples(OBJECTS, OBJECTS, FIELDS)
)


def sides(drawn: dict[str, tuple[Any, ...]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Objects of the one and of the other side; often they have the same, or one that differs in a field."""
    new = {path: one for path, (one, *_) in drawn.items() if one}
    old = {}
    for path, (one, other, *changed) in drawn.items():
        if changed:
            old[path] = {**one, **{name: other[name] for name in changed[0]}}
        elif other:
            old[path] = other
    return new, old


def rows_of(side: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [{"path": path, "kind": "data", "reason": "unreferenced", **found} for path, found in side.items()]
    ordered = sorted(rows, key=lambda row: (row["stage"], row["path"].encode()))
    return [{**row, "number": number} for number, row in enumerate(ordered)]


def batches(rows: list[dict[str, Any]], cut: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (
        pa.RecordBatch.from_pylist(rows[at : at + cut], schema=schema).select(schema.names)
        for at in range(0, len(rows), cut)
    )


@given(drawn=SIDES, cuts=st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_law_the_same_object_is_found_and_never_another(drawn, cuts):
    new, old = sides(drawn)
    rows, known = rows_of(new), rows_of(old)
    numbers = {row["path"]: row["number"] for row in known}
    looked_up = plan_file.look_up(
        batches(rows, cuts[0], plan_file.PLAN_SCHEMA), batches(known, cuts[1], KNOWN_SCHEMA), "number"
    )
    found = [number for _, values in looked_up for number in values.to_pylist()]
    for row, number in zip(rows, found, strict=True):
        one, other = new[row["path"]], old.get(row["path"])
        if one == other:
            assert number == numbers[row["path"]]
        elif other is None or one != {**other, "stage": one["stage"]}:
            assert number is None
