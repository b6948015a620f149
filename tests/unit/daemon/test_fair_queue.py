"""Whose turn it is: no tenant waits for another's number of tables."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from lakesweep.daemon.limits import Due, FairQueue

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def tables(tenant, count, since=NOON):
    return [Due(tenant=tenant, table=f"{tenant}/d/{number}", since=since) for number in range(count)]


def starts(due, places, length):
    """The tenants of the first tables to start, when each running table ends after `length` further starts."""
    turns, waiting, running, started = FairQueue(), list(due), [], []
    while waiting:
        chosen = turns.choose(waiting, Counter(one.tenant for one in running), places - len(running))
        for one in chosen:
            waiting.remove(one)
            running.append(one)
            started.append(one)
        running = running[length:] if len(running) >= places else running
    return started


def test_ten_thousand_tables_do_not_starve_three():
    turns, small = FairQueue(), tables("small", 3)
    waiting = [*tables("large", 10_000, since=NOON - timedelta(days=1)), *small]
    chosen = turns.choose(waiting, {}, 8)
    assert {one.table for one in small} <= {one.table for one in chosen}


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1),
    places=st.integers(1, 8),
    length=st.integers(1, 4),
)
def test_law_a_tenant_waits_for_one_run_of_each_other_tenant(sizes, places, length):
    due = [one for tenant, size in sizes.items() for one in tables(tenant, size)]
    order = [one.tenant for one in starts(due, places, min(length, places))]
    assert Counter(order) == Counter(sizes)
    for tenant, size in sizes.items():
        last = max(index for index, name in enumerate(order) if name == tenant)
        # In the worst case all places were taken by others when it came.
        assert last < size * len(sizes) + places


def test_of_one_tenant_the_table_that_waits_longest_goes_first():
    due = [Due(tenant="a", table=f"t{age}", since=NOON - timedelta(hours=age)) for age in (1, 3, 2)]
    assert [one.table for one in FairQueue().choose(due, {}, 3)] == ["t3", "t2", "t1"]


def test_the_tenant_with_the_fewest_running_tables_goes_first():
    due = [*tables("a", 2), *tables("b", 2)]
    assert [one.tenant for one in FairQueue().choose(due, {"a": 2}, 3)] == ["b", "b", "a"]


def test_turns_go_round_also_when_there_is_one_place():
    turns, waiting, order = FairQueue(), [one for name in "abc" for one in tables(name, 3)], []
    for _ in range(9):
        (one,) = turns.choose(waiting, {}, 1)
        waiting.remove(one)
        order.append(one.tenant)
    assert order == list("abcabcabc")


def test_no_place_means_no_turn():
    assert FairQueue().choose(tables("a", 1), {}, 0) == []


def test_a_tenant_that_asks_for_many_runs_does_not_starve_another():
    flood = [Due(tenant="a", table=f"a/d/{n}", since=NOON - timedelta(days=1), requested=True) for n in range(1000)]
    chosen = FairQueue().choose([*flood, *tables("b", 4)], {}, 8)
    assert Counter(one.tenant for one in chosen) == {"a": 4, "b": 4}


def test_no_tenant_gets_more_than_its_share():
    chosen = FairQueue().choose(tables("a", 9), {"a": 1}, 8, most_per_tenant=3)
    assert len(chosen) == 2


def test_what_a_person_asked_for_goes_before_what_is_due():
    due = Due(tenant="a", table="due", since=NOON - timedelta(days=9))
    asked = [Due(tenant="a", table=f"asked {n}", since=NOON + timedelta(seconds=n), requested=True) for n in (2, 1)]
    assert [one.table for one in FairQueue().choose([due, *asked], {}, 3)] == ["asked 1", "asked 2", "due"]
