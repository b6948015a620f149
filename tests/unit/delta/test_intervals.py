"""Interval properties mean what Spark takes them for, and nothing else is ever guessed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.formats.delta import protocol


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("interval 30 days", timedelta(days=30)),
        ("interval 1 week", timedelta(weeks=1)),
        ("30 days", timedelta(days=30)),
        ("INTERVAL 2 WEEKS", timedelta(weeks=2)),
        ("interval 1 day 12 hours", timedelta(days=1, hours=12)),
        ("  Interval  90   minutes ", timedelta(minutes=90)),
        ("interval 1 second", timedelta(seconds=1)),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("interval 250 milliseconds 7 microseconds", timedelta(microseconds=250_007)),
        ("interval 0 hours", timedelta(0)),
        ("interval 2 days -1 day", timedelta(days=1)),
        ("interval - 0 day 3 hour", timedelta(hours=3)),
        ("interval 0 months 5 days", timedelta(days=5)),
    ],
)
def test_intervals_are_read_as_spark_reads_them(text, meaning):
    assert protocol.parse_interval(text) == meaning


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "interval",
        "interval ",
        "a week",
        "interval one week",
        "7",
        "interval 7",
        "7days",
        "interval 1 fortnight",
        "interval 1 month",
        "interval 1 year",
        "interval -1 days",
        "interval 1.5 days",
        "interval 1 day and 2 hours",
        "P7D",
        "interval 1 day,",
        "١ day",
    ],
)
def test_text_that_is_not_an_interval_is_never_guessed(text):
    with pytest.raises(ValueError):
        protocol.parse_interval(text)


def test_an_endless_interval_keeps_for_as_long_as_the_calendar_can_say():
    assert protocol.parse_interval("interval 99999999999999999999 weeks") == protocol.LONGEST


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from(["week", "day", "hour", "minute", "second"])), min_size=1
    )
)
def test_every_term_counts(terms):
    text = " ".join(f"{number} {unit}s" for number, unit in terms)
    assert protocol.parse_interval(text) == sum(
        (timedelta(**{f"{unit}s": number}) for number, unit in terms), timedelta()
    )
