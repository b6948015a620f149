"""Claims of thousands of tables are looked up at once, with the same answer as one by one."""

from hypothesis import example, given
from hypothesis import strategies as st

from lakesweep.daemon.ghost_claims import Claims
from lakesweep.model.location import Location

SEGMENT = st.sampled_from(["a", "b", "ab", "a.b", "", "é"])
PATHS = st.lists(SEGMENT, max_size=4).map("/".join)
BUCKETS = st.sampled_from(
    ["s3://lake/", "s3://lake2/", "file:///", "s3://arn:aws:s3:x:1:accesspoint/p/", "s3://p-s3alias/"]
)
PLACES = st.builds(lambda bucket, path: Location.parse(bucket + path), BUCKETS, PATHS)


ACCESS_POINT = Location.parse("s3://arn:aws:s3:x:1:accesspoint/p/")


@given(claimed=st.lists(PLACES, max_size=6), place=PLACES)
@example(claimed=[ACCESS_POINT.join("a")], place=ACCESS_POINT)
def test_law_a_place_touches_what_overlaps_with_it(claimed, place):
    claims = Claims(claimed)
    assert (claims.touches(place) is not None) == any(one.overlaps(place) for one in claimed)
    if not any("//" in f"/{one.path}" for one in (place, *claimed)):
        inside = any(one.overlaps(place) and not place.contains(one) for one in claimed)
        assert claims.holds(place) == inside
