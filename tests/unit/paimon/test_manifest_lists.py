"""Manifest lists: read by columns they say what their records say, or they are refused."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc, parquet

from lakesweep.formats import avro
from lakesweep.formats.paimon import manifests
from lakesweep.model.errors import Refused

_BYTES_OR_NULL = ["null", "bytes"]
_STATS = {
    "type": "record",
    "name": "stats",
    "fields": [{"name": "_MIN_VALUES", "type": _BYTES_OR_NULL}, {"name": "_MAX_VALUES", "type": _BYTES_OR_NULL}],
}


def schema(**types: Any) -> dict[str, Any]:
    """A list's schema; a type of None leaves a field out."""
    fields = {
        "_VERSION": "int",
        "_FILE_NAME": "string",
        "_FILE_SIZE": "long",
        "_NUM_ADDED_FILES": "long",
        "_NUM_DELETED_FILES": "long",
        "_PARTITION_STATS": _STATS,
        "_SCHEMA_ID": "long",
        "_EXTRA_FILES": ["null", {"type": "array", "items": "string"}],
    }
    fields |= types
    listed = [{"name": name, "type": type_} for name, type_ in fields.items() if type_ is not None]
    return {"type": "record", "name": "entry", "fields": listed}


def record(number: int = 0, **values: Any) -> dict[str, Any]:
    return {
        "_VERSION": 2,
        "_FILE_NAME": f"manifest-{number}",
        "_FILE_SIZE": 1000 + number,
        "_NUM_ADDED_FILES": number,
        "_NUM_DELETED_FILES": 2,
        "_PARTITION_STATS": {"_MIN_VALUES": b"\0", "_MAX_VALUES": None},
        "_SCHEMA_ID": 0,
        "_EXTRA_FILES": None,
    } | values


ARROW = pa.schema(
    [
        ("_VERSION", pa.int32()),
        ("_FILE_NAME", pa.string()),
        *[(name, pa.int64()) for name in ("_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES")],
        ("_PARTITION_STATS", pa.struct([("_MIN_VALUES", pa.binary()), ("_MAX_VALUES", pa.binary())])),
        ("_SCHEMA_ID", pa.int64()),
        ("_EXTRA_FILES", pa.list_(pa.string())),
    ]
)


def orc_bytes(records: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(records, schema=ARROW), sink)
    return sink.getvalue()


def parquet_bytes(records: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(records, schema=ARROW), sink)
    return sink.getvalue()


records = st.lists(
    st.builds(
        record,
        st.integers(0, 5),
        _FILE_SIZE=st.sampled_from([0, 7, 2**40]),
        _NUM_DELETED_FILES=st.sampled_from([0, 3]),
        _EXTRA_FILES=st.none() | st.lists(st.sampled_from(["a.index", "ü.index"]), max_size=3),
    ),
    max_size=12,
)
WRITERS = {
    "zstandard": lambda rows: avro.write(schema(), rows),
    "deflate": lambda rows: avro.write(schema(), rows, codec="deflate"),
    "nullable": lambda rows: avro.write(schema(_FILE_NAME=["string", "null"], _FILE_SIZE=["null", "long"]), rows),
    "narrow": lambda rows: avro.write(schema(_NUM_ADDED_FILES="int", _NUM_DELETED_FILES="int"), rows),
    "slow": lambda rows: avro.write(schema(_FILE_NAME=["null", "string", "bytes"]), rows),
    "orc": orc_bytes,
    "parquet": parquet_bytes,
}


@settings(max_examples=40, deadline=None)
@given(records, st.sampled_from(sorted(WRITERS)))
def test_the_columns_of_a_list_are_those_of_its_records(rows, writer):
    data = WRITERS[writer](rows)
    expected = [
        manifests.ManifestMeta(
            name=row["_FILE_NAME"],
            size_bytes=row["_FILE_SIZE"],
            added=row["_NUM_ADDED_FILES"],
            deleted=row["_NUM_DELETED_FILES"],
            sidecars=tuple(row["_EXTRA_FILES"] or ()),
        )
        for row in manifests.read_records(data)
    ]
    assert manifests.read_list(data) == expected
    known: manifests.Known = {}
    assert manifests.read_list(data, known) == expected
    assert len(set(map(id, manifests.read_list(data, known)))) == len(set(expected)) == len(known)
    full = manifests.read_list_records(data)
    assert [one.document for one in full] == manifests.read_records(data)
    assert [(one.name, one.size_bytes, one.entries, one.sidecars) for one in full] == [
        (one.name, one.size_bytes, one.entries, one.sidecars) for one in expected
    ]


def test_lists_share_the_manifests_that_they_have_in_common_and_no_others():
    known: manifests.Known = {}
    before = manifests.read_list(avro.write(schema(), [record(1), record(2)]), known)
    rows = [record(1), record(2), record(2, _FILE_SIZE=7), record(2, _EXTRA_FILES=["x"]), record(3)]
    after = manifests.read_list(avro.write(schema(), rows), known)
    assert after[0] is before[0]
    assert after[1] is before[1]
    assert [meta.size_bytes for meta in after] == [1001, 1002, 7, 1002, 1003]
    assert [meta.sidecars for meta in after] == [(), (), (), ("x",), ()]


def test_older_lists_have_no_extra_files():
    rows = [{name: value for name, value in record(1).items() if name != "_EXTRA_FILES"}]
    (meta,) = manifests.read_list(avro.write(schema(_EXTRA_FILES=None), rows))
    assert meta.sidecars == ()


_OPTIONAL = {name: ["null", "long"] for name in ("_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES")}
_OPTIONAL["_FILE_NAME"] = ["null", "string"]


@pytest.mark.parametrize("name", sorted(_OPTIONAL))
def test_a_manifest_without_a_name_a_size_or_a_count_is_damage(name):
    whole = [record(1), record(2)]
    missing = [record(1), record(2, **{name: None})]
    absent = [{key: value for key, value in row.items() if key != name} for row in whole]
    assert len(manifests.read_list(avro.write(schema(**_OPTIONAL), whole))) == 2
    for data in (avro.write(schema(**_OPTIONAL), missing), avro.write(schema(**{name: None}), absent)):
        with pytest.raises(ValueError, match=f"an entry without {name}"):
            manifests.read_list(data)


@pytest.mark.parametrize(
    ("types", "values", "why"),
    [
        ({}, {"_FILE_NAME": ""}, "an entry without _FILE_NAME"),
        ({}, {"_EXTRA_FILES": [""]}, "an extra file without a name"),
        (
            {"_EXTRA_FILES": {"type": "array", "items": ["null", "string"]}},
            {"_EXTRA_FILES": [None, "x"]},
            "an extra file without a name",
        ),
        ({"_FILE_SIZE": "string"}, {"_FILE_SIZE": "7"}, "_FILE_SIZE is of type string"),
        ({"_FILE_NAME": "long"}, {"_FILE_NAME": 7}, "_FILE_NAME is of type int64"),
        ({"_NUM_ADDED_FILES": "double"}, {"_NUM_ADDED_FILES": 7.0}, "_NUM_ADDED_FILES is of type double"),
        ({"_NUM_ADDED_FILES": "boolean"}, {"_NUM_ADDED_FILES": True}, "_NUM_ADDED_FILES is of type bool"),
        ({"_EXTRA_FILES": "string"}, {"_EXTRA_FILES": "abc"}, "_EXTRA_FILES is of type string"),
    ],
)
def test_a_list_that_says_something_else_is_damage(types, values, why):
    with pytest.raises(ValueError, match=why):
        manifests.read_list(avro.write(schema(**types), [record(1, **values)]))


def test_one_entry_of_another_version_refuses_the_list():
    with pytest.raises(Refused, match="version 3"):
        manifests.read_list(avro.write(schema(), [record(1), record(2, _VERSION=3)]))
    with pytest.raises(Refused, match="version None"):
        manifests.read_list(avro.write(schema(_VERSION=["null", "int"]), [record(1, _VERSION=None)]))


@pytest.mark.parametrize("fields", [7, [7], [{"type": "int"}]])
def test_a_list_whose_schema_is_nonsense_is_damage(fields):
    good = avro.write(schema(), [record(1)], codec="null")
    header = avro._header(
        {"avro.schema": json.dumps({"type": "record", "name": "r", "fields": fields}).encode()}, bytes(16)
    )
    assert len(manifests.read_list(good)) == 1
    with pytest.raises(ValueError, match="malformed"):
        manifests.read_list(header)
