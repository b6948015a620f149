"""Adds and removes by the column come out as one by one, whatever part of a column they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.formats.delta import files
from lakesweep.formats.delta.paths import Malformed
from lakesweep.model.location import Location

VECTOR = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32())])
FIELDS = [("path", pa.string()), ("deletionVector", VECTOR), ("deletionTimestamp", pa.int64())]
STORED = "^-aqEH.-t@S}K{vb[*k^"
ROOTS = [Location.parse(text) for text in ("s3://lake/t", "s3://lake//t", "file:///t")]
PATHS = st.sampled_from(
    [
        *("a", "x%2Fa", "d=1%3A0/a", "d=1%3A0/ü", "a%20b", "x//a", "%2Fa", "é/%C3%A9"),
        *("s3://else/t/a", "s3a://lake/t/b%20c", "file:/t/a"),
    ]
)
VECTORS = st.fixed_dictionaries(
    {
        "storageType": st.just("u"),
        "pathOrInlineDv": st.sampled_from([STORED, f"ab{STORED}"]),
        "offset": st.sampled_from([None, 0, 3]),
    }
) | st.sampled_from(
    [
        {"storageType": "i", "pathOrInlineDv": "zz", "offset": None},
        {"storageType": "p", "pathOrInlineDv": "s3://lake/t/v%20w", "offset": 1},
    ]
)
ROWS = st.lists(st.tuples(PATHS, VECTORS, st.booleans(), st.sampled_from([None, 5])), max_size=8)


@given(ROWS, st.sampled_from(ROOTS), st.data())
def test_every_slice_of_actions_is_read_as_one_by_one(rows, root, data):
    """Below a vector that is null there may be values: they mean nothing."""
    spelled, vectors, null, times = zip(*rows, strict=True) if rows else ((), (), (), ())
    below = pa.array(vectors, VECTOR)
    nullable = pa.StructArray.from_arrays(below.flatten(), fields=list(VECTOR), mask=pa.array(null, pa.bool_()))
    columns = [pa.array(spelled, pa.string()), nullable, pa.array(times, pa.int64())]
    whole = pa.StructArray.from_arrays(columns, fields=[pa.field(*field) for field in FIELDS])
    part = whole.slice(*data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    for by_columns, one in ((files.adds, files.add), (files.removes, files.remove)):
        found = by_columns(part, root)
        found.validate(full=True)
        assert found.to_pylist() == files.from_actions(one(row, root) for row in part.to_pylist()).to_pylist()


def test_an_action_without_its_path_is_never_left_out():
    with pytest.raises(Malformed, match="has no path"):
        files.adds(pa.array([{"path": "a"}, {"path": None}]), ROOTS[0])
