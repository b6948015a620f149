"""Checkpoint files to references: the same for every encoding, guarded against damage, and fit for other processes."""

from __future__ import annotations

import io
import json
import pickle
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.delta import NOW, days_ago, inline_vector, millis, parquet, stored_vector

from lakesweep.engines import common
from lakesweep.formats.delta import checkpoint, files
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName
from lakesweep.ports.references import ReferenceSource

ROOT = Location.parse("s3://lake/t")
BASE = "s3://lake/t/"
EXPIRES = days_ago(7)
ROWS = [
    {"add": {"path": "a.parquet"}},
    {"add": {"path": "k=a%20b/b.parquet", "deletionVector": stored_vector("^-aqEH.-t@S}K{vb[*k^")}},
    {"add": {"path": "s3a://lake/t/c.parquet", "deletionVector": inline_vector()}},
    {"add": {"path": "s3://other/lake/t/d.parquet"}},
    {"remove": {"path": "young.parquet", "deletionTimestamp": millis(EXPIRES)}},
    {"remove": {"path": "old.parquet", "deletionTimestamp": millis(EXPIRES) - 1}},
    {"remove": {"path": "ageless.parquet"}},
]
LIVE = {"a.parquet", "k=a b/b.parquet", "c.parquet", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"}
TOLERATED = {"young.parquet", "d.parquet", "t/d.parquet", "lake/t/d.parquet"}
ELSEWHERE = {"s3://other/lake/t/d.parquet"}


def _source(data: bytes, name: str = "x.checkpoint.parquet", **more) -> ReferenceSource:
    known = {"size_bytes": len(data), "context": checkpoint.context(ROOT, millis(EXPIRES)), **more}
    place = ROOT.join("_delta_log", name)
    return ReferenceSource(location=place, format=FormatName.DELTA, kind=checkpoint.KIND, retained=True, **known)


def _decoded(data: bytes, name: str = "x.checkpoint.parquet") -> tuple[set[str], set[str]]:
    decoded = checkpoint.decode(_source(data, name), data)
    rows = common.naming(_source(data, name), decoded).to_pylist()
    live = {row["path"].removeprefix(BASE) for row in rows if not row["tolerated"]}
    return live, {row["path"].removeprefix(BASE) for row in rows if row["tolerated"]}


def _json(rows: list[dict]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def test_parquet_and_json_name_the_same_files():
    assert _decoded(parquet(ROWS)) == (LIVE, TOLERATED)
    assert _decoded(_json(ROWS), "x.checkpoint.u.json") == (LIVE, TOLERATED)
    for data, name in ((parquet(ROWS), "x.checkpoint.parquet"), (_json(ROWS), "x.checkpoint.u.json")):
        rows = checkpoint.decode(_source(data, name), data).to_pylist()
        assert {row["path"] for row in rows if row["elsewhere"]} == ELSEWHERE


def test_of_a_table_that_is_not_listed_no_file_counts_as_elsewhere():
    data = parquet(ROWS)
    source = _source(data, context=checkpoint.context(ROOT, millis(EXPIRES), listed=False))
    assert checkpoint.decode(source, data).schema.names == ["path", "tolerated"]


def test_a_file_of_another_length_than_listed_is_damaged():
    data = parquet(ROWS)
    with pytest.raises(Unreadable, match="bytes instead of"):
        checkpoint.decode(_source(data, size_bytes=len(data) + 1), data)


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_a_file_that_was_cut_is_damaged(cut):
    data = parquet(ROWS)[:-cut]
    with pytest.raises(Unreadable, match="not a Delta checkpoint"):
        checkpoint.decode(_source(data), data)


@pytest.mark.parametrize("body", [{"path": None, "size": 1}, {"path": "%FF"}, {"path": ""}])
def test_an_add_whose_path_is_unknown_is_damage_and_never_skipped(body):
    data = parquet([{"add": body}])
    with pytest.raises(Unreadable):
        checkpoint.decode(_source(data), data)


@pytest.mark.parametrize(
    "vector",
    [
        stored_vector("short"),
        {"storageType": "u", "pathOrInlineDv": None},
        {"storageType": "p", "pathOrInlineDv": None},
        {"storageType": None, "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^"},
        {"storageType": "x", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^"},
    ],
)
def test_a_deletion_vector_that_cannot_be_placed_is_damage(vector):
    data = parquet([{"add": {"path": "a", "deletionVector": vector}}])
    with pytest.raises(Unreadable):
        checkpoint.decode(_source(data), data)


def _written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_columns_that_a_writer_left_out_are_empty():
    adds = pa.array([{"path": "a.parquet"}, None], pa.struct([("path", pa.string())]))
    assert _decoded(_written(pa.table({"add": adds}))) == ({"a.parquet"}, set())
    removes = pa.array([{"path": "r.parquet"}], pa.struct([("path", pa.string())]))
    assert _decoded(_written(pa.table({"remove": removes}))) == (set(), set())
    assert _decoded(_written(pa.table({"txn": pa.array([1])}))) == (set(), set())


def test_texts_may_be_of_any_arrow_type():
    adds = pa.array([{"path": "a.parquet"}], pa.struct([("path", pa.large_string())]))
    assert _decoded(_written(pa.table({"add": adds}))) == ({"a.parquet"}, set())


def test_a_decoder_and_its_source_travel_to_other_processes():
    data = parquet(ROWS)
    run, source = pickle.loads(pickle.dumps((checkpoint.decode, _source(data))))
    assert run(source, data).num_rows == len(LIVE) + len(TOLERATED) + len(ELSEWHERE)


def test_holders_find_every_action_that_names_a_wanted_address():
    for data, name in ((parquet(ROWS), "x.parquet"), (_json(ROWS), "x.json")):
        for wanted in (*LIVE, *TOLERATED, "old.parquet"):
            found = checkpoint.holders(data, ROOT, name, pa.array([BASE + wanted]))
            assert BASE + wanted in (*files.addresses(found).to_pylist(), *files.aliases(found).to_pylist())


def test_holders_find_a_file_however_many_slashes_it_is_spelled_with():
    data = parquet([{"add": {"path": "k=1//a.parquet"}}, {"add": {"path": "k=2/a.parquet"}}])
    found = checkpoint.holders(data, ROOT, "x.parquet", pa.array([f"{BASE}k=1/a.parquet"]))
    assert files.addresses(found).to_pylist() == [f"{BASE}k=1//a.parquet"]


_STRUCT = pa.struct([("path", pa.string())])


@pytest.mark.parametrize(
    "columns",
    [
        {"Add": pa.array([{"path": "a"}], _STRUCT)},
        {"add": pa.array([{"Path": "a"}])},
        {"add": pa.array([{"path": "a", "deletionvector": {"storageType": "i"}}])},
        {"add": pa.array([{"path": "a", "deletionVector": {"StorageType": "i"}}])},
        {"add": pa.array([{"size": 1}])},
        {"add": pa.array(["a"])},
        {"remove": pa.array([{"deletionTimestamp": 1}])},
        {"add": pa.array([{"path": "a"}], _STRUCT), "REMOVE": pa.array([{"path": "b"}], _STRUCT)},
    ],
)
def test_actions_in_a_column_by_another_name_are_damage_and_never_skipped(columns):
    data = _written(pa.table(columns))
    with pytest.raises(Unreadable, match="column"):
        checkpoint.decode(_source(data), data)


@pytest.mark.parametrize(
    "columns", [{"SideCar": pa.array([{"path": "a"}])}, {"sidecar": pa.array([{"sizeInBytes": 1}])}]
)
def test_sidecars_in_a_column_by_another_name_are_damage_and_never_skipped(columns):
    with pytest.raises(Unreadable, match="column"):
        checkpoint.read_head(_written(pa.table(columns)), ROOT, "x.parquet")


def test_a_checkpoint_with_an_action_that_has_no_path_does_not_verify():
    with pytest.raises(Unreadable, match="has no path"):
        checkpoint.verify(parquet([{"add": {"path": None, "size": 1}}]), ROOT, "x.parquet")


_NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(_NAMES, max_size=20))
def test_plain_and_odd_names_are_read_alike_by_columns_and_one_by_one(names):
    rows = [{"add": {"path": quote(name)}} for name in names]
    assert _decoded(parquet(rows))[0] == set(names) == _decoded(_json(rows) or b"{}", "x.checkpoint.u.json")[0]


@given(st.lists(st.tuples(_NAMES, _NAMES), max_size=10), st.sampled_from(["/", "%2F", "%2f", "//"]))
def test_every_directory_and_name_is_decoded_once_and_exactly(pairs, slash):
    rows = [{"add": {"path": f"{quote(directory)}{slash}{quote(name)}"}} for directory, name in pairs]
    between = "//" if slash == "//" else "/"
    assert _decoded(parquet(rows))[0] == {f"{directory}{between}{name}" for directory, name in pairs}


def test_the_moment_is_part_of_a_sources_identity():
    """A later cycle may judge a remove otherwise: the cache must not answer for it."""
    earlier = _source(b"", context=checkpoint.context(ROOT, millis(EXPIRES)))
    assert earlier.cache_key != _source(b"", context=checkpoint.context(ROOT, millis(NOW))).cache_key
