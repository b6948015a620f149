"""Commits replayed by the column come out as commits replayed one action at a time."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.delta import stored_vector

from lakesweep.formats.delta import actions
from lakesweep.formats.delta.state import Tail
from lakesweep.model.location import Location

ROOT = Location.parse("s3://lake/t")
NOW = 10
VECTORS = [None, stored_vector("^-aqEH.-t@S}K{vb[*k^"), {"storageType": "p", "pathOrInlineDv": "v", "offset": 1}]
PATHS = ["a", "b", "a//b", "a/b", "c%20d", "c d", "s3a://lake/t/a", "s3://else/t/a"]
FILES = st.builds(
    lambda kind, path, vector, time: {kind: {"path": path, "deletionVector": vector, "deletionTimestamp": time}},
    st.sampled_from(["add", "remove"]),
    st.sampled_from(PATHS),
    st.sampled_from(VECTORS),
    st.integers(NOW - 1, NOW),
)
COMMITS = st.lists(st.lists(FILES, min_size=1, max_size=5), max_size=5)


def _parsed(rows: list[dict]) -> actions.Actions:
    return actions.parse("\n".join(map(json.dumps, rows)).encode(), ROOT, "x.json")


def _one_by_one(commits: list[actions.Actions]) -> dict[str, dict]:
    """The last action on each file."""
    return {row["key"]: row for commit in commits for row in commit.files.to_pylist()}


def _addresses(row: dict) -> set[str]:
    return {row["address"], row["vector"]} - {None}


def _everywhere(row: dict) -> set[str]:
    return _addresses(row) | set(row["elsewhere"] or ())


def _protects(row: dict) -> bool:
    return row["removed_ms"] is None or row["removed_ms"] >= NOW


@given(COMMITS)
def test_the_last_action_on_a_file_wins(written):
    commits = [_parsed(rows) for rows in written]
    last = _one_by_one(commits)
    tail = Tail.replay(commits)
    assert {row["key"]: row for row in tail.last.to_pylist()} == last
    assert tail.last.num_rows == len(last)
    live = {address for row in last.values() if row["removed_ms"] is None for address in _addresses(row)}
    assert sorted(tail.live()) == sorted(live)
    added = {address for row in last.values() if row["removed_ms"] is None for address in _everywhere(row)}
    removed = {address for row in last.values() if row["removed_ms"] is not None for address in _everywhere(row)}
    assert sorted(tail.removed().to_pylist()) == sorted(removed - added)
    assert sorted(tail.elsewhere()) == sorted(added - live)
    kept = [row for row in last.values() if _protects(row)]
    lately = {address for row in kept if row["removed_ms"] is not None for address in _addresses(row)}
    assert tail.tolerated(NOW) == sorted(lately | {alias for row in kept for alias in row["aliases"] or ()})


@given(COMMITS, st.lists(FILES, min_size=1, max_size=5))
def test_a_checkpoint_holds_what_no_commit_has_overruled(written, older):
    commits, checkpoint = [_parsed(rows) for rows in written], _parsed(older).files
    tail, last = Tail.replay(commits), _one_by_one(commits)
    removed = tail.removed()
    held = {
        address
        for row in checkpoint.to_pylist()
        if row["key"] not in last and _protects(row)
        for address in (*_everywhere(row), *(row["aliases"] or ()))
    }
    held_keys = {Location.parse(address).match_key for address in held}
    expected = {address for address in removed.to_pylist() if Location.parse(address).match_key in held_keys}
    assert set(tail.still_held(removed, checkpoint, NOW).to_pylist()) == expected


def test_a_checkpoint_holds_a_file_however_many_slashes_it_is_spelled_with():
    tail = Tail.replay([_parsed([{"remove": {"path": "a/b"}}])])
    older = _parsed([{"add": {"path": "a//b", "deletionVector": VECTORS[1]}}])
    assert tail.still_held(tail.removed(), older.files, NOW).to_pylist() == ["s3://lake/t/a/b"]


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize(
    ("added", "removed"),
    [("d//x", "d/x"), ("d=é/x", "d=%C3%A9/x"), ("s3://lake/t/x", "x"), ("x", "%78"), ("a b", "a%20b")],
)
def test_a_remove_overrules_only_the_add_that_spells_the_path_alike(added, removed, vector):
    """To every reader of the log the other one is still live."""
    add = {"add": {"path": added, "deletionVector": vector}}
    commits = [_parsed([one]) for one in (add, {"remove": {"path": removed, "deletionVector": vector}})]
    address = commits[0].files.column("address")[0].as_py()
    assert address in Tail.replay(commits).live()
    behind = Tail.replay(commits[1:])
    assert behind.removed().to_pylist()[0] in behind.still_held(behind.removed(), commits[0].files, NOW).to_pylist()


def test_an_add_and_a_remove_of_one_commit_keep_the_file():
    add, remove = {"add": {"path": "a"}}, {"remove": {"path": "a"}}
    for rows in ([add, remove], [remove, add]):
        assert Tail.replay([_parsed(rows)]).live() == ["s3://lake/t/a"]


def test_two_vectors_of_one_file_are_two_files():
    first, second = ({"path": "a", "deletionVector": vector} for vector in VECTORS[1:])
    tail = Tail.replay([_parsed([{"add": first}]), _parsed([{"remove": first}, {"add": second}])])
    assert tail.live() == ["s3://lake/t/a", "s3://lake/t/v"]
    assert tail.removed() == pa.array(["s3://lake/t/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"])
