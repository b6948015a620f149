"""Files of actions: the fast reader says what the exact one says, of every file, or leaves it to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.delta import inline_vector, stored_vector

from lakesweep.formats.delta import actions
from lakesweep.formats.delta.actions import Actions
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location

ROOT = Location.parse("s3://lake//t")
VECTOR = stored_vector("^-aqEH.-t@S}K{vb[*k^")
PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
COMMIT = [
    {"commitInfo": {"inCommitTimestamp": 12, "operation": "WRITE"}},
    {"protocol": PROTOCOL},
    {"metaData": {"id": "x", "partitionColumns": ["day"], "configuration": {"a": "b"}}},
    {"add": {"path": "day=1/a.parquet", "stats": '{"numRecords": 1}', "tags": {"path": "not this one"}}},
    {"remove": {"path": "day=1/b.parquet", "deletionTimestamp": 5, "dataChange": True}},
    {"add": {"path": "day=a%20b/c.parquet", "deletionVector": VECTOR}},
    {"add": {"path": "s3a://lake/t/d.parquet", "deletionVector": inline_vector()}},
    {"remove": {"path": "day=1//e.parquet"}},
    {"cdc": {"path": "_change_data/f.parquet"}},
    {"sidecar": {"path": "g.parquet", "sizeInBytes": 7}},
    {"txn": {"appId": "h", "version": 1}},
]


def _written(rows: list[dict]) -> bytes:
    return b"\n".join(json.dumps(row, ensure_ascii=False).encode() for row in rows)


def _said(found: Actions) -> tuple[object, ...]:
    few = (found.protocol, found.metadata, found.change_data, found.sidecars, found.in_commit_ms, found.stated_ms)
    return (*few, found.files.to_pylist(), found.files.schema)


def _outcome(read, data: bytes) -> object:
    try:
        return _said(read(data, ROOT, "x.json"))
    except Unreadable as exc:
        return str(exc)


def _told_alike(data: bytes) -> bool:
    exact = _outcome(actions.parse_exactly, data)
    fast = actions.parse_fast(data, ROOT)
    return (fast is None or _said(fast) == exact) and _outcome(actions.parse, data) == exact


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_an_ordinary_commit_is_read_by_columns(end):
    data = _written(COMMIT) + end
    assert actions.parse_fast(data, ROOT) is not None
    assert _told_alike(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "[]",
        "{}",
        "{}\n\n{}",
        '{"add":null}',
        '{"add":{}}',
        '{"add":[]}',
        '{"add":{"path":null}}',
        '{"add":{"path":7}}',
        '{"add":{"path":""}}',
        '{"add":{"path":"%ff"}}',
        '{"add":{"path":"a","path":"b"}}',
        '{"add":{"path":"a"},"add":{"path":"b"}}',
        '{"add":{"path":"a"},"add":null}',
        '{"add":{"path":"a"},"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
        '{"add":{"path":"a"},"remove":{"path":"b"}}',
        '{"add":{"path":"a"}}{"add":{"path":"b"}}\n{"add":\n{"path":"c"}}',
        '{"add":\n{"path":"a"}}',
        '{"add":{"path":"a"}} \r\n{"add":{"path":"b"}}',
        '{"add":{"path":"a"}}\0',
        '{"add":{"path":"a"}}\0{"add":{"path":"b"}}',
        '{"add":{"path":"a"}}{"add":{"path":"b"}}',
        '{"add":{"path":"a"}} {"commitInfo":{}}\n{"protocol":{}}',
        '{"add":{"path":"a"}\n,"remove":{"path":"b"}}{"add":{"path":"c"}}',
        '{"add":{"path":"a\\ud800"}}',
        '{"add":{"path":"\\ud83d\\ude00\\u0000\\/"}}',
        '{"\\u0061dd":{"p\\u0061th":"a"}}',
        '{"add":{"path":"a","x":Inf}}',
        '{"add":{"path":"a","x":-Infinity}}',
        '{"add":{"path":"a","x":NaN}}',
        '{"add":{"path":"a","x":01}}',
        '{"add":{"path":"a","x":"\t"}}',
        '{"add":{"path":"a","deletionVector":{}}}',
        '{"add":{"path":"a","deletionVector":false}}',
        '{"add":{"path":"a","deletionVector":{"storageType":"u"}}}',
        '{"add":{"path":"a","deletionVector":{"storageType":"x","pathOrInlineDv":"y"}}}',
        '{"add":{"path":"a","deletionVector":{"storageType":"i","pathOrInlineDv":"y","offset":1.0}}}',
        '{"remove":{"path":"a","deletionTimestamp":1.5}}',
        '{"remove":{"path":"a","deletionTimestamp":"1"}}',
        '{"remove":{"path":"a","deletionTimestamp":true}}',
        '{"remove":{"path":"a","deletionTimestamp":NaN}}',
        '{"remove":{"path":"a","deletionTimestamp":99999999999999999999}}',
        '{"remove":{"path":"a","deletionTimestamp":1e400}}',
        '{"commitInfo":{"inCommitTimestamp":"1"}}',
        '{"commitInfo":{"inCommitTimestamp":1.5}}',
        '{"protocol":3}',
        '{"protocol":{}}',
        '{"protocol":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"add":null,"add":{"path":"a"}}',
        '{"add":{"path":"a","deletionVector":null,"deletionVector":{"storageType":"i","pathOrInlineDv":"y"}}}',
        '{"add":{"path":"a"},"add":{"path":"b"}}\n{"add":{"path":"c"}}',
        '{"Add":{"path":"a"}}',
        '{"add":{"Path":"a"}}',
        '{"add":{"path":"a"}',
        '\ufeff{"add":{"path":"a"}}',
    ],
)
def test_what_is_odd_or_damaged_is_reported_as_by_the_exact_reader(text):
    assert _told_alike(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "text",
    [
        '{"add":{"path":"a"},"commitInfo":{}}',
        '{"remove":{"path":"a"},"sidecar":{"path":"b"}}',
        '{"add":{"path":null}}',
        '{"add":{"path":"a","deletionVector":{}}}',
        '{"add":{"path":"a"}}\r\n{"add":{"path":"b"}}',
        '{"add":{"path":"a"}}{"add":{"path":"b"}}',
    ],
)
def test_unusual_lines_are_left_to_the_exact_reader(text):
    assert actions.parse_fast(text.encode(), ROOT) is None


def test_bytes_that_are_no_text_are_reported_as_by_the_exact_reader():
    assert _told_alike(b'{"add":{"path":"a","stats":"\xff"}}')
    assert _told_alike('{"add":{"path":"ü","stats":"ü"}}'.encode())


def test_a_line_longer_than_a_block_is_still_read():
    row = {"add": {"path": "a.parquet", "stats": "x" * 3_000_000}}
    assert actions.parse(_written([row]), ROOT, "x.json").files.column("address").to_pylist() == [
        "s3://lake//t/a.parquet"
    ]


def test_times_beyond_every_date_stay_beyond_every_date():
    data = _written([{"remove": {"path": "a", "deletionTimestamp": time}} for time in (10**30, -(10**30), 5.9, -5.1)])
    times = actions.parse(data, ROOT, "x.json").files.column("removed_ms").to_pylist()
    assert times == [2**63 - 1, -(2**63), 5, -6]


@pytest.mark.parametrize("time", ["NaN", '"1"', "[1]", '""', "[]", "{}", "false", "true"])
def test_a_remove_whose_time_is_no_number_is_damage_and_was_not_long_ago(time):
    with pytest.raises(Unreadable):
        actions.parse(b'{"remove":{"path":"a","deletionTimestamp":%b}}' % time.encode(), ROOT, "x.json")


_PATHS = st.sampled_from(
    [
        *("a", "b", "a%20b", "a b", "x//a", "/a", "s3://lake/t/a", "s3://else/t/a", "%", "", "ü", None, 3),
        *("d=1%3A0/a", "d=1%3A0/b%20c", "d=1:0/a", "%2Fa", "x%2F/a", "x/%2Fa", "a%3A/b", "s3%3A//lake/t/a"),
        *(
            "file:/t/a",
            "s3:/lake/t/a",
            "a:/b",
            "%C3/%BC",
            "%c3%bc/ü%C3%BC",
            "%zz/%4",
            "%00/a",
            "s3a://lake/t/a%20b",
            "x%2Fa",
            "x/a",
        ),
    ]
)
_STORED = ("^-aqEH.-t@S}K{vb[*k^", "ab^-aqEH.-t@S}K{vb[*k^", "a%20//^-aqEH.-t@S}K{vb[*k^", "short", "é", None)
_VECTORS = st.one_of(
    st.sampled_from([None, {}, VECTOR, inline_vector(), 3]),
    st.fixed_dictionaries(
        {"storageType": st.sampled_from(["u", "u", "p", "i", "x", None]), "pathOrInlineDv": st.sampled_from(_STORED)},
        optional={"offset": st.sampled_from([0, 1, 12, -1, None, 2**31])},
    ),
)
_TIMES = st.one_of(st.none(), st.integers(), st.sampled_from([1.5, "1", True]))
_FILES = st.fixed_dictionaries(
    {"path": _PATHS}, optional={"deletionVector": _VECTORS, "deletionTimestamp": _TIMES, "stats": st.text(max_size=3)}
)
_LINES = st.lists(
    st.one_of(
        st.sampled_from(COMMIT),
        st.dictionaries(st.sampled_from(["add", "remove", "txn"]), st.one_of(st.none(), _FILES), max_size=2),
    ),
    max_size=6,
)


@given(_LINES)
def test_both_readers_say_the_same_of_every_file(rows):
    assert _told_alike(_written(rows))


_GOOD = ["a", "file:/t/a", "x%2Fa", "x/a", "d=1%3A0/a", "d=1%3A0/ü", "a%20b", "s3://else/t/a", "x//a", "%2Fa"]
_GOOD_VECTORS = [None, VECTOR, stored_vector("ab^-aqEH.-t@S}K{vb[*k^"), inline_vector()]
_GOOD_FILES = st.builds(
    lambda kind, path, vector: {kind: {"path": path, "deletionVector": vector}},
    st.sampled_from(["add", "remove"]),
    st.sampled_from(_GOOD),
    st.sampled_from(_GOOD_VECTORS),
)


@given(st.lists(_GOOD_FILES, min_size=1, max_size=12))
def test_escapes_and_vectors_are_read_by_columns(rows):
    data = _written(rows)
    assert actions.parse_fast(data, ROOT) is not None
    assert _told_alike(data)


@given(st.data())
def test_both_readers_say_the_same_of_every_damage(data):
    whole = _written(COMMIT)
    at = data.draw(st.integers(0, len(whole) - 1))
    put = data.draw(st.one_of(st.binary(max_size=2), st.sampled_from([b"{", b"}", b"\n", b'"', b"}\n{", b",", b":"])))
    rest = data.draw(st.sampled_from([whole[at:], whole[at + 1 :], b""]))
    assert _told_alike(whole[:at] + put + rest)
