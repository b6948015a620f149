"""The store's clock by its last answer: only a recent one that comes from the store itself."""

from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.storage.s3.client import AnsweredClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DATE = "Fri, 01 May 2026 12:00:00 GMT"


class Steady:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def test_what_passed_since_the_answer_is_added():
    steady = Steady()
    clock = AnsweredClock(steady)
    assert clock.now() is None
    clock.note({"headers": {"Date": DATE}})
    steady.seconds += 4
    assert clock.now() == NOON + timedelta(seconds=4)


@pytest.mark.parametrize("passed", [5.0, 86400.0, -1.0])
def test_an_old_answer_tells_nothing(passed):
    steady = Steady()
    clock = AnsweredClock(steady)
    clock.note({"headers": {"date": DATE}})
    steady.seconds += passed
    assert clock.now() is None


@pytest.mark.parametrize(
    "headers", [{}, {"date": "soon"}, {"date": ""}, {"date": DATE, "age": "7"}, {"date": "Fri, 01 May 2026 12:00:00"}]
)
def test_only_a_date_that_the_store_itself_has_just_set_counts(headers):
    clock = AnsweredClock(Steady())
    clock.note({"headers": headers})
    clock.note(None)
    assert clock.now() is None


def test_a_useless_answer_leaves_the_last_good_one():
    clock = AnsweredClock(Steady())
    clock.note({"headers": {"date": DATE}})
    clock.note({"headers": {}})
    assert clock.now() == NOON
