"""Split points lie strictly inside their range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.storage.s3.keys import midpoint

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@given(TEXT, TEXT, st.none() | TEXT)
def test_a_point_is_after_the_low_end_and_before_the_high_end(prefix, rest, bound):
    low, high = prefix + rest, None if bound is None else prefix + bound
    point = midpoint(low, high, prefix)
    if point is not None:
        assert low < point
        assert point < (prefix + "\x7f" if high is None else high)
        assert point.startswith(prefix)


@given(TEXT, TEXT)
def test_a_point_adds_no_slash(prefix, rest):
    point = midpoint(prefix + rest, None, prefix)
    assert point is None or not point.endswith("/") or point == (prefix + rest)[: len(point)]


@pytest.mark.parametrize(
    ("low", "bound", "prefix", "point"),
    [
        ("t/a", None, "t/", "t/n"),
        ("t/0", None, "t/", "t/5"),
        ("t/9", None, "t/", "t/\\"),
        ("t/00-x", "t/01", "t/", "t/00V"),
        ("t/0017", "t/01", "t/", "t/005"),
        ("t/a", "t/c", "t/", "t/b"),
        ("t/aa", "t/b", "t/", "t/an"),
        ("t/a", "t/b", "t/", "t/aO"),
        ("t/b", "t/a", "t/", None),
        ("t/a", "t/a", "t/", None),
        ("t/.", "t/0", "t/", "t/.O"),
        ("u/a", None, "t/", None),
    ],
)
def test_known_points(low, bound, prefix, point):
    assert midpoint(low, bound, prefix) == point
