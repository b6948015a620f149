"""Which snapshots go. The formula is checked against an independent, id-by-id reading of Paimon's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesweep.formats.paimon.options import read_options
from lakesweep.formats.paimon.retention import Decision, Rules, changelog_rules, decide, snapshot_rules
from lakesweep.formats.paimon.snapshots import PaimonSnapshot, parse_snapshot
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy

NOW = datetime(2026, 1, 10, tzinfo=UTC)
FOREVER = 2**31 - 1


def snapshot(number: int, age: timedelta) -> PaimonSnapshot:
    millis = int((NOW - age).timestamp() * 1000)
    document = {
        "version": 3,
        "id": number,
        "schemaId": 0,
        "baseManifestList": "b",
        "deltaManifestList": "d",
        "commitUser": "u",
        "commitIdentifier": number,
        "commitKind": "APPEND",
        "timeMillis": millis,
    }
    return parse_snapshot(json.dumps(document).encode(), Location.parse(f"/t/snapshot/snapshot-{number}"))


def chain(*hours: float, first: int = 1) -> list[PaimonSnapshot]:
    """Snapshots of these ages, oldest first."""
    return [snapshot(first + index, timedelta(hours=age)) for index, age in enumerate(hours)]


def rules(**changes: object) -> Rules:
    return Rules(**({"num_min": 1, "num_max": FOREVER, "time": timedelta(hours=1), "limit": 10} | changes))  # type: ignore[arg-type]


def decided(snapshots: list[PaimonSnapshot], consumers: dict[str, int] | None = None, **changes: object) -> Decision:
    latest = snapshots[-1].id
    return decide(snapshots, latest_id=latest, rules=rules(**changes), consumers=consumers or {}, now=NOW)


def test_old_ones_go_oldest_first_and_the_latest_always_stays() -> None:
    assert decided(chain(9, 8, 7, 6)).expire == (1, 2, 3)
    assert decided(chain(9)).expire == ()


def test_the_minimum_number_stays_whatever_its_age() -> None:
    assert decided(chain(9, 8, 7, 6, 5), num_min=3).expire == (1, 2)
    assert decided(chain(9, 8), num_min=10).expire == ()


def test_more_than_the_maximum_go_whatever_their_age() -> None:
    assert decided(chain(0.1, 0.1, 0.1, 0.1, 0.1), num_max=3).expire == (1, 2)


def test_an_age_counts_from_when_the_snapshot_was_replaced() -> None:
    assert decided(chain(9, 8, 0.5, 0.4)).expire == (1,)


def test_a_young_one_protects_everything_after_it() -> None:
    """Clocks of writers differ: an old-looking snapshot behind a young one stays."""
    assert decided(chain(9, 0.5, 9, 9, 9)).expire == ()


def test_at_most_the_limit_goes_and_none_with_a_limit_of_zero() -> None:
    assert decided(chain(*range(40, 10, -1)), limit=10).expire == tuple(range(1, 11))
    assert decided(chain(9, 8, 7), limit=0).expire == ()


def test_a_consumer_keeps_what_it_reads_next_and_everything_after() -> None:
    assert decided(chain(9, 8, 7, 6), consumers={"slow": 2, "fast": 4}).expire == (1,)
    assert decided(chain(9, 8, 7, 6), consumers={"new": 1}).expire == ()
    why = {kept.id: kept.why for kept in decided(chain(9, 8, 7, 6), consumers={"slow": 2}).keep}
    assert "consumer slow" in why["2"]


def test_gaps_in_the_ids_are_stepped_over() -> None:
    snapshots = [*chain(99), *chain(9, 8, 7, first=50)]
    assert decided(snapshots).expire == (1, 50, 51)
    assert decided(snapshots, limit=1).expire == (1,)


def test_every_kept_snapshot_says_why() -> None:
    decision = decided(chain(9, 8, 0.5, 0.4), num_min=1)
    assert [kept.id for kept in decision.keep] == ["2", "3", "4"]
    assert "current" in decision.keep[0].why
    assert decision.keep[-1].why == "it is the latest"


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 300)), min_size=1, max_size=14),
    st.integers(1, 6),
    st.integers(0, 10),
    st.integers(0, 12),
    st.integers(0, 200),
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 30), max_size=2),
)
def test_the_decision_is_paimons_formula(
    steps: list[tuple[int, int]], num_min: int, more: int, limit: int, minutes: int, consumers: dict[str, int]
) -> None:
    ids, number = [], 0
    for step, _ in steps:
        number += step
        ids.append(number)
    snapshots = [snapshot(one, timedelta(minutes=age)) for one, (_, age) in zip(ids, steps, strict=True)]
    found = decided(
        snapshots, consumers, num_min=num_min, num_max=num_min + more, time=timedelta(minutes=minutes), limit=limit
    )
    assert list(found.expire) == _formula(snapshots, consumers, num_min, num_min + more, minutes, limit)
    assert {*map(str, found.expire)} | {kept.id for kept in found.keep} == {str(one) for one in ids}


def _formula(
    snapshots: list[PaimonSnapshot], consumers: dict[str, int], num_min: int, num_max: int, minutes: int, limit: int
) -> list[int]:
    by_id = {one.id: one for one in snapshots}
    latest, cutoff = max(by_id), int((NOW - timedelta(minutes=minutes)).timestamp() * 1000)
    end = min([latest - num_min + 1, *consumers.values()])
    expired: list[int] = []
    for number in sorted(by_id):
        later = [other for other in sorted(by_id) if other > number]
        replaced = max(by_id[number].time_millis, by_id[later[0]].time_millis if later else 0)
        young = number > latest - num_max and replaced >= cutoff
        if number >= end or young or len(expired) >= limit:
            break
        expired.append(number)
    return expired


def test_the_tables_options_come_first_and_then_the_policy() -> None:
    policy = CleanupPolicy(max_snapshot_age=timedelta(hours=5), min_snapshots_to_keep=4)
    silent = snapshot_rules(read_options({}), policy)
    assert (silent.num_min, silent.time, silent.num_max, silent.limit) == (4, timedelta(hours=5), FOREVER, 10)
    table = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "7", "snapshot.time-retained": "30 min"}
    own = snapshot_rules(read_options(table | {"snapshot.expire.limit": "3"}), policy)
    assert (own.num_min, own.num_max, own.time, own.limit) == (2, 7, timedelta(minutes=30), 3)


def test_where_nobody_says_anything_paimons_own_minimum_holds() -> None:
    untouched = snapshot_rules(read_options({}), CleanupPolicy())
    assert (untouched.num_min, untouched.time) == (10, timedelta(hours=720))
    assert snapshot_rules(read_options({}), CleanupPolicy(max_snapshot_age=timedelta(0))).num_min == 1
    assert snapshot_rules(read_options({}), CleanupPolicy(min_snapshots_to_keep=3)).num_min == 3
    assert snapshot_rules(read_options({"snapshot.num-retained.min": "2"}), CleanupPolicy()).num_min == 2


def test_changelogs_follow_the_snapshots_where_nothing_is_said() -> None:
    policy = CleanupPolicy()
    options = read_options({"changelog.num-retained.min": "20"})
    found = changelog_rules(options, snapshot_rules(options, policy))
    assert (found.num_min, found.time) == (20, policy.max_snapshot_age)


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_a_maximum_below_the_policys_minimum_wins_because_the_table_said_it(keep: int) -> None:
    policy = CleanupPolicy(min_snapshots_to_keep=keep, max_snapshot_age=timedelta(hours=1))
    found = snapshot_rules(read_options({"snapshot.num-retained.max": "2"}), policy)
    assert found.num_min == min(keep, 2)
