"""The decisions about leases, without any store behind them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.model.errors import LeaseLost
from lakesweep.model.run import Lease
from lakesweep.state import rules

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TTL = timedelta(seconds=60)
leases = st.builds(
    Lease,
    table=st.just("t"),
    owner=st.sampled_from("abc"),
    token=st.integers(1, 5),
    expires_at=st.integers(-3, 3).map(lambda seconds: NOON + timedelta(seconds=seconds)),
)


def is_valid(newest, token, now):
    try:
        rules.require_valid(newest, table="t", token=token, now=now)
    except LeaseLost:
        return False
    return True


@given(newest=st.none() | leases, owner=st.sampled_from("abcd"))
def test_a_grant_is_newer_than_everything_and_voids_what_was_before(newest, owner):
    granted = rules.grant(newest, table="t", owner=owner, ttl=TTL, now=NOON)
    if granted is None:
        assert newest is not None
        assert newest.owner != owner
        assert is_valid(newest, newest.token, NOON)
        return
    assert granted == Lease(table="t", owner=owner, token=granted.token, expires_at=NOON + TTL)
    assert is_valid(granted, granted.token, NOON)
    if newest:
        assert granted.token > newest.token
        assert not is_valid(granted, newest.token, NOON)


@given(newest=leases, token=st.integers(0, 6))
def test_only_the_newest_token_is_valid_and_only_before_its_end(newest, token):
    assert is_valid(newest, token, NOON) == (token == newest.token and newest.expires_at > NOON)


@given(newest=leases)
def test_at_the_very_end_a_lease_is_over_for_its_holder_and_free_for_others(newest):
    assert not is_valid(newest, newest.token, newest.expires_at)
    assert rules.grant(newest, table="t", owner="d", ttl=TTL, now=newest.expires_at) is not None


def test_a_lost_lease_says_to_whom():
    newest = Lease(table="acme/prod/events", owner="pod-2", token=9, expires_at=NOON)
    with pytest.raises(LeaseLost, match="the lease on acme/prod/events with token 8 is void: pod-2 was granted 9"):
        rules.require_valid(newest, table="acme/prod/events", token=8, now=NOON)
