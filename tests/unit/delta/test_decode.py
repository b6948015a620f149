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

from lakesweep.cleanup.ports import ReferenceSource
from lakesweep.formats.delta import checkpoint, decode
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName

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


def _source(data: bytes, name: str = "x.checkpoint.parquet", **more) -> ReferenceSource:
    known = {"size_bytes": len(data), "context": decode.context(ROOT, millis(EXPIRES)), **more}
    place = ROOT.join("_delta_log", name)
    return ReferenceSource(location=place, format=FormatName.DELTA, kind=decode.KIND, retained=True, **known)


def _decoded(data: bytes, name: str = "x.checkpoint.parquet") -> tuple[set[str], set[str]]:
    rows = decode.decode(_source(data, name), data).to_pylist()
    live = {row["path"].removeprefix(BASE) for row in rows if not row["tolerated"]}
    return live, {row["path"].removeprefix(BASE) for row in rows if row["tolerated"]}


def _json(rows: list[dict]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in rows)


def test_parquet_and_json_name_the_same_files():
    assert _decoded(parquet(ROWS)) == (LIVE, TOLERATED)
    assert _decoded(_json(ROWS), "x.checkpoint.u.json") == (LIVE, TOLERATED)


def test_a_file_of_another_length_than_listed_is_damaged():
    data = parquet(ROWS)
    with pytest.raises(Unreadable, match="bytes instead of"):
        decode.decode(_source(data, size_bytes=len(data) + 1), data)


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_a_file_that_was_cut_is_damaged(cut):
    data = parquet(ROWS)[:-cut]
    with pytest.raises(Unreadable, match="not a Delta checkpoint"):
        decode.decode(_source(data), data)


@pytest.mark.parametrize("body", [{"path": None, "size": 1}, {"path": "%FF"}, {"path": ""}])
def test_an_add_whose_path_cannot_be_told_is_damage_and_never_skipped(body):
    data = parquet([{"add": body}])
    with pytest.raises(Unreadable):
        decode.decode(_source(data), data)


def test_a_deletion_vector_that_cannot_be_placed_is_damage():
    data = parquet([{"add": {"path": "a", "deletionVector": stored_vector("short")}}])
    with pytest.raises(Unreadable):
        decode.decode(_source(data), data)


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
    run, source = pickle.loads(pickle.dumps((decode.decode, _source(data))))
    assert run(source, data).num_rows == len(LIVE) + len(TOLERATED)


def test_holders_find_every_action_that_names_a_wanted_address():
    for data, name in ((parquet(ROWS), "x.parquet"), (_json(ROWS), "x.json")):
        for wanted in ("a.parquet", "k=a b/b.parquet", "c.parquet", "old.parquet", "t/d.parquet"):
            found = checkpoint.holders(data, ROOT, name, frozenset({BASE + wanted}))
            assert any(BASE + wanted in (*action.addresses, *action.aliases) for action in found)


_NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(_NAMES, max_size=20))
def test_plain_and_odd_names_are_told_alike_by_columns_and_one_by_one(names):
    rows = [{"add": {"path": quote(name)}} for name in names]
    assert _decoded(parquet(rows))[0] == set(names) == _decoded(_json(rows) or b"{}", "x.checkpoint.u.json")[0]


def test_the_moment_is_part_of_a_sources_identity():
    """A later cycle may judge a remove otherwise: the cache must not answer for it."""
    earlier = _source(b"", context=decode.context(ROOT, millis(EXPIRES)))
    assert earlier.cache_key != _source(b"", context=decode.context(ROOT, millis(NOW))).cache_key
