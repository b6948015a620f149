"""Addresses by the column must say exactly what `Location` says of each address."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import Role
from lakesweep.model.errors import Indeterminate
from lakesweep.model.location import Location
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.ports.table import MatchBy

SCHEMES = ["s3://", "s3a://", "s3n://", "S3A://", "hdfs://", "gs://", "file:", "file://", "FILE:/", "file:///", "/", ""]
SEGMENTS = ["", "a", "b=1", "x:", "://", "s3a://", ".hidden", "ü", "%2F", "#?", "\n", "localhost", "nn:8020", "file:"]

texts = st.builds(
    lambda scheme, parts, joint: scheme + joint.join(parts),
    st.sampled_from(SCHEMES),
    st.lists(st.sampled_from(SEGMENTS), max_size=5),
    st.sampled_from(["/", "//", "///"]),
)
addresses_of_one_store = st.lists(st.text(alphabet="ab/:.", max_size=8), min_size=1, max_size=6).flatmap(
    lambda tails: st.sampled_from(["s3://b/", "s3a://b/", "file:///", "file:/", "/"]).map(
        lambda prefix: [prefix + tail for tail in tails]
    )
)


def column(paths):
    return pa.array(paths, pa.string())


def expected(text, rule):
    try:
        return rule(Location.parse(text))
    except ValueError:
        return None


def check_against_location(paths):
    keys = [expected(path, lambda found: found.match_key) for path in paths]
    raws = [expected(path, lambda found: found.raw) for path in paths]
    if None in keys:
        with pytest.raises(Indeterminate):
            addresses.match_keys(column(paths), MatchBy.ADDRESS)
        with pytest.raises(Indeterminate):
            addresses.canonical(column(paths))
    else:
        assert addresses.match_keys(column(paths), MatchBy.ADDRESS).to_pylist() == keys
        assert addresses.canonical(column(paths)).to_pylist() == raws


@settings(deadline=None, max_examples=examples(100, soak=3000))
@given(st.lists(texts, max_size=6))
def test_mixed_addresses_get_the_key_that_location_gives(paths):
    check_against_location(paths)


@settings(deadline=None, max_examples=examples(100, soak=3000))
@given(addresses_of_one_store)
def test_addresses_of_one_store_get_the_key_that_location_gives(paths):
    check_against_location(paths)


@settings(deadline=None, max_examples=examples(100, soak=3000))
@given(st.lists(texts, max_size=6))
def test_a_name_is_what_stands_behind_the_last_slash(paths):
    names = [path.rpartition("/")[2] for path in paths]
    assert addresses.match_key_list(paths, MatchBy.NAME) == names


def test_slices_are_read_from_their_own_rows():
    rows = column(["s3a://b/x/1", "s3://b/x/2", "/x/3", "s3n://b//x/4"]).slice(1, 3)
    assert addresses.match_keys(rows, MatchBy.ADDRESS).to_pylist() == ["s3://b/x/2", "file:///x/3", "s3://b/x/4"]
    assert addresses.match_keys(rows, MatchBy.NAME).to_pylist() == ["2", "3", "4"]


def test_addresses_that_need_no_change_are_not_copied():
    rows = column(["s3://b/x/1", "s3://b/y"])
    assert addresses.match_keys(rows, MatchBy.ADDRESS) is rows
    names = column(["s3://b//odd", "s3://b/x/1", "1", "2"])
    for few, match_by in ((names.slice(1, 1), MatchBy.ADDRESS), (names.slice(2), MatchBy.NAME)):
        assert addresses.match_keys(few, match_by) is few


@settings(deadline=None, max_examples=examples(100, soak=3000))
@given(
    tails=st.lists(st.text(alphabet="ab/.", max_size=8), max_size=6),
    prefix=st.sampled_from(["s3://b/t/", "s3://b/t/", "s3://b//t/", "s3a://b/t/", "s3://b/t2/"]),
    cut=st.integers(0, 2),
)
def test_references_are_placed_as_location_says_of_each(tails, prefix, cut):
    root, paths = Location.parse("s3://b/t"), [prefix + tail for tail in tails]
    rows = column(paths).slice(cut)
    if any(segment in (".", "..") for path in paths[cut:] for segment in path.split("/")):
        with pytest.raises(Indeterminate, match="path segment"):
            addresses.place(rows, Role.READ, MatchBy.ADDRESS, [root])
        return
    placed = addresses.place(rows, Role.READ, MatchBy.ADDRESS, [root])
    keys = [Location.parse(path).match_key for path in paths[cut:]]
    assert placed.column("address").to_pylist() == [Location.parse(path).raw for path in paths[cut:]]
    assert addresses.placed_keys(placed).to_pylist() == keys
    assert placed.column("inside").to_pylist() == [key.startswith("s3://b/t/") for key in keys]
    assert placed.column("guarded_name").is_valid().to_pylist() == [not key.startswith("s3://b/t/") for key in keys]


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab.", max_size=4), max_size=6), st.integers(0, 2))
def test_bare_names_are_placed_as_they_are_or_refused(names, cut):
    rows, wanted = column(names).slice(cut), names[cut:]
    if {"", ".", ".."} & set(wanted):
        with pytest.raises(Indeterminate):
            addresses.place(rows, Role.READ, MatchBy.NAME, [Location.parse("s3://b/t")])
        return
    placed = addresses.place(rows, Role.READ, MatchBy.NAME, [Location.parse("s3://b/t")])
    assert placed.column("match_key").to_pylist() == wanted
    assert placed.column("address").null_count == len(wanted)
    assert placed.column("inside").to_pylist() == [True] * len(wanted)


def test_an_address_among_bare_names_is_still_one():
    placed = addresses.place(column(["a", "s3://x/b"]), Role.READ, MatchBy.NAME, [Location.parse("s3://b/t")])
    assert placed.column("match_key").to_pylist() == ["a", "b"]
    assert placed.column("address").to_pylist() == [None, "s3://x/b"]
    assert placed.column("inside").to_pylist() == [True, False]


@pytest.mark.parametrize("at", [0, 4095, 4096, 9999])
def test_one_odd_address_is_seen_wherever_it_is_in_a_long_column(at):
    paths = [f"s3://b/t/{number}" for number in range(10_000)]
    paths[at] = "s3://b/t//odd"
    assert addresses.match_keys(column(paths), MatchBy.ADDRESS)[at].as_py() == "s3://b/t/odd"
    placed = addresses.place(column(paths), Role.READ, MatchBy.ADDRESS, [Location.parse("s3://b/t")])
    assert (placed.column("match_key").null_count, placed.column("match_key")[at].as_py()) == (9999, "s3://b/t/odd")
    paths[at] = "s3://b/t/./odd"
    with pytest.raises(Indeterminate, match="path segment"):
        addresses.place(column(paths), Role.READ, MatchBy.ADDRESS, [Location.parse("s3://b/t")])


@pytest.mark.parametrize("spelled", ["file:/x/1", "file:///x/1", "/x/1", "FILE:///x/1", "file://localhost/x/1"])
def test_all_spellings_of_a_path_are_one_place_below_the_disks_root(spelled):
    placed = addresses.place(column([spelled]), Role.READ, MatchBy.ADDRESS, [Location.parse("/")])
    assert placed.column("address").to_pylist() == ["file:///x/1"]
    assert placed.column("inside").to_pylist() == [True]


@pytest.mark.parametrize("bad", ["data/part-0.parquet", "", "file://other-host/x", "s3:///x", "s3:/x"])
def test_a_reference_that_cannot_be_placed_is_doubt(bad):
    with pytest.raises(Indeterminate):
        addresses.place(column(["s3://b/t/ok", bad]), Role.READ, MatchBy.ADDRESS, [Location.parse("s3://b/t")])


@pytest.mark.parametrize("match_by", list(MatchBy))
@pytest.mark.parametrize("bad", ["s3://b/t/../u/x", "/t/./x", "/t/.."])
def test_a_reference_with_a_dot_segment_is_doubt(bad, match_by):
    with pytest.raises(Indeterminate, match="path segment"):
        addresses.place(column([bad]), Role.READ, match_by, [Location.parse("/t")])


def test_a_null_reference_is_doubt():
    with pytest.raises(Indeterminate):
        addresses.place(pa.array([None], pa.string()), Role.NAMED, MatchBy.ADDRESS, [Location.parse("/t")])


@pytest.mark.parametrize("bad", ["", "s3://b/t/dir/"])
def test_a_name_reference_without_a_name_is_doubt(bad):
    with pytest.raises(Indeterminate):
        addresses.place(column([bad]), Role.READ, MatchBy.NAME, [Location.parse("s3://b/t")])


def test_hidden_names_are_no_dot_segments():
    placed = addresses.place(column(["/t/.x/..y"]), Role.READ, MatchBy.ADDRESS, [Location.parse("/t")])
    assert placed.column("address").to_pylist() == ["file:///t/.x/..y"]


def test_placed_addresses_say_whether_storage_should_show_them():
    paths = ["s3a://b/t/x", "s3://b//t//x", "s3://b/t2/x", "s3://other/t/x", "hdfs://nn/t/x"]
    placed = addresses.place(column(paths), Role.READ, MatchBy.ADDRESS, [Location.parse("s3://b/t")])
    assert placed.column("inside").to_pylist() == [True, True, False, False, False]
    assert placed.column("address").to_pylist() == [
        "s3://b/t/x",
        "s3://b//t//x",
        "s3://b/t2/x",
        "s3://other/t/x",
        "hdfs://nn/t/x",
    ]
    assert placed.column("match_key").to_pylist() == [None, "s3://b/t/x", None, None, None]
    assert placed.column("guarded_name").to_pylist() == [None, None, "x", "x", "x"]
    assert set(placed.column("role").to_pylist()) == {"read"}


@pytest.mark.parametrize("second", ["s3://b/t", "s3://a/u"])
def test_with_several_roots_every_reference_guards_its_name(second):
    """One bucket, or one directory, may have two names."""
    roots = [Location.parse("s3://a/t"), Location.parse(second)]
    placed = addresses.place(column(["s3://a/t/x"]), Role.READ, MatchBy.ADDRESS, roots)
    assert placed.column("guarded_name").to_pylist() == ["x"]


def test_bare_names_have_no_address_and_are_expected_below_the_roots():
    paths = ["data-1.orc", "s3a://b/t/bucket-0/data-2.orc", "s3://ext/data-3.orc"]
    placed = addresses.place(column(paths), Role.READ, MatchBy.NAME, [Location.parse("s3://b/t")])
    assert placed.column("match_key").to_pylist() == ["data-1.orc", "data-2.orc", "data-3.orc"]
    assert placed.column("address").to_pylist() == [None, "s3://b/t/bucket-0/data-2.orc", "s3://ext/data-3.orc"]
    assert placed.column("inside").to_pylist() == [True, True, False]


def test_inventory_rows_keep_their_path_and_gain_a_key_where_it_differs():
    listing = pa.RecordBatch.from_pylist(
        [
            {"path": "s3://b/t//x", "size_bytes": 1, "modified_at": None, "etag": None},
            {"path": "s3://b/t/y", "size_bytes": 2, "modified_at": None, "etag": "e"},
        ],
        schema=LISTING_SCHEMA,
    )
    rows = addresses.inventory(listing, MatchBy.ADDRESS)
    assert rows.column("path").to_pylist() == ["s3://b/t//x", "s3://b/t/y"]
    assert rows.column("match_key").to_pylist() == ["s3://b/t/x", None]
    names = addresses.inventory(listing, MatchBy.NAME)
    assert names.column("match_key").to_pylist() == ["x", "y"]
