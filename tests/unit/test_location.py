"""Addresses: one place, one name; keys byte for byte; containment by segment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.model.location import Location

KEYS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)


@pytest.mark.parametrize("text", ["file:/x/y", "file:///x/y", "/x/y", "file://localhost/x/y"])
def test_local_spellings_are_one_place(text):
    assert Location.parse(text) == Location("file", "", "/x/y")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3"])
def test_s3_spellings_are_one_scheme(scheme):
    assert Location.parse(f"{scheme}://bucket/a/b").raw == "s3://bucket/a/b"


@given(KEYS)
def test_a_key_survives_parsing_byte_for_byte(key):
    assert Location.parse(f"s3://bucket/{key}").path == key
    assert Location.parse(Location.parse(f"s3://bucket/{key}").raw).path == key


@pytest.mark.parametrize("text", ["", "relative/path", "s3://", "s3:/bucket/key", "file://elsewhere/x", "file:x"])
def test_what_is_not_an_absolute_address_is_an_error(text):
    with pytest.raises(ValueError, match="address"):
        Location.parse(text)


def test_runs_of_slashes_compare_equal_but_stay_apart_when_deleted():
    one, two = Location.parse("s3://b/t//x"), Location.parse("s3://b/t/x")
    assert one.match_key == two.match_key
    assert one.raw != two.raw


@pytest.mark.parametrize(
    ("root", "inside", "expected"),
    [
        ("s3://b/t1", "s3://b/t1/x", True),
        ("s3://b/t1", "s3://b/t10/x", False),
        ("s3://b/t1", "s3://b/t1", False),
        ("s3://b/t1", "s3://b/t1/", False),
        ("s3://b/t1", "s3://other/t1/x", False),
        ("s3://b", "s3://b/x", True),
        ("s3://b/t1", "s3://b/t1/../t2/x", False),
        ("/lake/t", "/lake/t/./x", False),
        ("/lake/t", "file:/lake/t/x", True),
    ],
)
def test_containment_is_by_segment(root, inside, expected):
    assert Location.parse(root).contains(Location.parse(inside)) is expected


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("s3://b/t", "s3a://b/t/", True),
        ("s3://b/t", "s3://b/t/nested", True),
        ("s3://b//t", "s3://b/t/nested", True),
        ("s3://b/t", "s3://b/t2", False),
        ("s3://b/t", "s3://c/t", False),
    ],
)
def test_overlap_is_symmetric_and_normalised(one, two, expected):
    assert Location.parse(one).overlaps(Location.parse(two)) is expected
    assert Location.parse(two).overlaps(Location.parse(one)) is expected


@pytest.mark.parametrize("text", ["/x/y", "s3://bucket/a", "s3a://bucket", "memory://b/c/d"])
@given(key=KEYS)
def test_what_begins_like_its_store_is_in_it_and_spelled_plainly(text, key):
    place = Location.parse(text)
    other = Location.parse(place.store + key)
    assert (other.scheme, other.authority) == (place.scheme, place.authority)
    assert other.raw == place.store + key
    assert place.raw.startswith(place.store)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("s3://lake-abc123-s3alias/t", True),
        ("s3://lake-abc123-s3alias/t/data", True),
        ("s3://lake-abc123-s3alias/u", False),
        ("s3://arn:aws:s3:eu-central-1:111122223333:accesspoint/ap/t", True),
        ("s3://arn:aws:s3:eu-central-1:111122223333:accesspoint/t", True),
        ("s3://arn:aws:s3:eu-central-1:111122223333:accesspoint:ap/t", True),
        ("s3://arn:aws:s3:eu-central-1:111122223333:accesspoint/ap/u", False),
        ("s3://other/t", False),
    ],
)
def test_an_access_point_may_lead_into_any_bucket_so_the_key_decides(other, same):
    bucket, point = Location.parse("s3://lake/t"), Location.parse(other)
    assert (bucket.overlaps(point), point.overlaps(bucket)) == (same, same)
    assert not bucket.contains(point)
    second = Location.parse("s3://arn:aws:s3:eu-central-1:111122223333:accesspoint/second/t")
    assert second.overlaps(point) is (same or not point.may_be_any_bucket), "two access points may be of one bucket"
