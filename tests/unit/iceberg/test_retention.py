"""Which snapshots go: Iceberg's RemoveSnapshots, law by law. Names in brackets are those of Iceberg's own tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.iceberg_retention import HOUR, NOW, branch, gone, table, tables, tag, why
from tests.laws import examples

from lakesweep.formats.iceberg import retention
from lakesweep.formats.iceberg.metadata import RefKind, TableMetadata
from lakesweep.model.policy import CleanupPolicy


def policy(hours: float = 24, keep: int = 1) -> CleanupPolicy:
    """Iceberg's rules alone: without a grace period nobody waits for readers."""
    return CleanupPolicy(
        max_snapshot_age=timedelta(hours=hours),
        min_snapshots_to_keep=keep,
        grace_period=timedelta(0),
        allow_short_grace=True,
    )


LINE = {1: (None, 100), 2: (1, 50), 3: (2, 1)}


def test_only_what_is_older_than_the_limit_goes():  # testExpireOlderThan, testExpireWithDefaultSnapshotAge
    plan = retention.plan(table(LINE, [branch("main", 3)]), policy(60), NOW)
    assert gone(plan) == {1}
    assert why(plan, 2) == "younger than 60 h on branch main"
    assert why(plan, 3) == "head of branch main"


def test_a_snapshot_exactly_at_the_limit_stays():
    assert gone(retention.plan(table(LINE, [branch("main", 3)]), policy(50), NOW)) == {1}


def test_the_current_snapshot_stays_however_old_it_is():
    plan = retention.plan(table({1: (None, 9000)}, [branch("main", 1)]), policy(1), NOW)
    assert gone(plan) == set()
    assert plan.empty


def test_the_minimum_number_stays_whatever_its_age():  # testRetainLastWithExpireOlderThan
    plan = retention.plan(table(LINE, [branch("main", 3)]), policy(0, keep=2), NOW)
    assert gone(plan) == {1}
    assert why(plan, 2) == "1 of the last 2 on branch main"


def test_a_minimum_above_what_there_is_keeps_everything():  # testRetainLastWithTooFewSnapshots
    assert retention.plan(table(LINE, [branch("main", 3)]), policy(0, keep=10), NOW).empty


def test_age_keeps_more_than_the_minimum_asks_for():  # testRetainLastKeepsExpiringSnapshot
    assert gone(retention.plan(table(LINE, [branch("main", 3)]), policy(60, keep=1), NOW)) == {1}


def test_the_walk_ends_at_the_first_old_snapshot_even_if_its_parent_is_young():
    crooked = {1: (None, 2), 2: (1, 90), 3: (2, 1)}
    assert gone(retention.plan(table(crooked, [branch("main", 3)]), policy(24), NOW)) == {1, 2}


def test_table_properties_win_over_the_service():  # testExpireWithDefaultRetainLast
    own = {"max_snapshot_age_ms": 10 * HOUR, "min_snapshots_to_keep": 2}
    assert gone(retention.plan(table(LINE, [branch("main", 3)], **own), policy(1000, keep=3), NOW)) == {1}


def test_a_branch_wins_over_the_table():  # testMinSnapshotsToKeepMultipleBranches
    own = branch("main", 3, min_snapshots_to_keep=3, max_snapshot_age_ms=1)
    assert retention.plan(table(LINE, [own], min_snapshots_to_keep=1), policy(0), NOW).empty


def test_the_most_generous_branch_wins():  # testMaxSnapshotAgeMultipleBranches
    refs = [branch("main", 3), branch("audit", 3, max_snapshot_age_ms=60 * HOUR)]
    plan = retention.plan(table(LINE, refs), policy(2), NOW)
    assert gone(plan) == {1}
    assert why(plan, 2) == "younger than 60 h on branch audit"


def test_a_tagged_snapshot_stays():
    plan = retention.plan(table(LINE, [branch("main", 3), tag("v1", 1)]), policy(2), NOW)
    assert gone(plan) == {2}
    assert why(plan, 1) == "tag v1"
    assert plan.expire[0].pins == ()


def test_a_tag_past_its_age_goes_with_its_snapshot():  # testTagExpiration
    refs = [branch("main", 3), tag("old", 1, max_ref_age_ms=99 * HOUR), tag("kept", 2, max_ref_age_ms=50 * HOUR)]
    plan = retention.plan(table(LINE, refs), policy(2), NOW)
    assert plan.drop_refs == ("old",)
    assert gone(plan) == {1}
    assert plan.expire[0].pins == ("tag old",)


def test_a_refs_age_is_that_of_its_snapshot_and_the_table_gives_the_default():
    refs = [branch("main", 3), tag("made today on an old snapshot", 1)]
    plan = retention.plan(table(LINE, refs, max_ref_age_ms=99 * HOUR), policy(2), NOW)
    assert plan.drop_refs == ("made today on an old snapshot",)


def test_a_branch_past_its_age_goes_and_main_never_does():  # testBranchExpiration
    refs = [branch("main", 3), branch("old", 2)]
    plan = retention.plan(table({1: (None, 9), 2: (1, 90), 3: (1, 80)}, refs, max_ref_age_ms=HOUR), policy(2), NOW)
    assert plan.drop_refs == ("old",)
    assert gone(plan) == {1, 2}


def test_dropping_a_ref_alone_is_something_to_commit():
    refs = [branch("main", 3), tag("old", 3, max_ref_age_ms=1)]
    plan = retention.plan(table({3: (None, 5)}, refs), policy(1), NOW)
    assert plan.drop_refs == ("old",)
    assert gone(plan) == set()
    assert not plan.empty


def test_a_ref_to_a_missing_snapshot_goes():
    plan = retention.plan(table(LINE, [branch("main", 3), tag("dangling", 77)]), policy(1000), NOW)
    assert plan.drop_refs == ("dangling",)


def test_a_young_staged_snapshot_stays_and_an_old_one_goes():  # testRetainUnreferencedSnapshotsWithinExpirationAge
    staged = LINE | {8: (2, 3), 9: (2, 90)}
    plan = retention.plan(table(staged, [branch("main", 3, min_snapshots_to_keep=3)]), policy(24), NOW)
    assert gone(plan) == {9}
    assert why(plan, 8) == "not on any branch, younger than 24 h"


def test_the_parent_of_a_tag_may_go():  # testUnreferencedSnapshotParentOfTag
    refs = [branch("main", 9), tag("v1", 3)]
    assert gone(retention.plan(table(LINE | {9: (None, 0)}, refs), policy(24), NOW)) == {1, 2}


def test_the_parent_of_a_branch_is_judged_by_the_branch():  # testSnapshotParentOfBranchNotUnreferenced
    refs = [branch("main", 9), branch("b", 3, min_snapshots_to_keep=1, max_snapshot_age_ms=1)]
    young = {1: (None, 3), 2: (1, 2), 3: (2, 1), 9: (None, 0)}
    assert gone(retention.plan(table(young, refs), policy(24), NOW)) == {1, 2}


def test_an_empty_table_has_nothing_to_expire():  # testExpireOnEmptyTable, testRemoveSnapshotsNoOp
    assert retention.plan(table({}, []), policy(), NOW).empty


def test_a_circle_of_parents_ends():
    assert retention.plan(table({1: (2, 1), 2: (1, 1)}, [branch("main", 1)]), policy(), NOW).empty


def test_a_fraction_of_an_hour_counts():
    plan = retention.plan(table({1: (None, 2), 2: (1, 1)}, [branch("main", 2)]), policy(1.5), NOW)
    assert gone(plan) == {1}


# --- our own rule: readers of a snapshot that was replaced have a day


def test_a_snapshot_stays_for_a_day_after_it_was_replaced_however_old_it_is():
    """It was what everybody read for a month, until an hour ago."""
    slow = {1: (None, 2000), 2: (1, 900), 3: (2, 1)}
    plan = retention.plan(table(slow, [branch("main", 3)]), CleanupPolicy(), NOW)
    assert gone(plan) == {1}
    assert why(plan, 2) == "it was current less than 24 h ago on branch main"


@pytest.mark.parametrize("own", [{"max_snapshot_age_ms": 0}, {}], ids=["table", "branch"])
def test_how_old_snapshots_may_grow_is_their_owners_choice(own):
    young = {1: (None, 30), 2: (1, 23), 3: (2, 1)}
    refs = [branch("main", 3, **({} if own else {"max_snapshot_age_ms": 0}))]
    assert gone(retention.plan(table(young, refs, **own), CleanupPolicy(), NOW)) == {1, 2}


def test_an_operator_may_ask_for_snapshots_to_go_sooner():
    slow = {1: (None, 2000), 2: (1, 900), 3: (2, 1)}
    for rules in (
        CleanupPolicy(max_snapshot_age=timedelta(hours=2)),
        CleanupPolicy(grace_period=timedelta(0), allow_short_grace=True),
    ):
        assert gone(retention.plan(table(slow, [branch("main", 3)]), rules, NOW)) == {1, 2}


def oracle(found: TableMetadata, rules: CleanupPolicy, now: datetime) -> tuple[set[int], set[str]]:
    """RemoveSnapshots written down again, slowly: which snapshots and refs go."""
    now_ms = round((now - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    time_of = {entry.id: entry.timestamp_ms for entry in found.snapshots}
    parent_of = {entry.id: entry.parent for entry in found.snapshots}
    age = found.history.max_snapshot_age_ms
    age = rules.max_snapshot_age.total_seconds() * 1000 if age is None else age
    least = found.history.min_snapshots_to_keep or rules.min_snapshots_to_keep
    kept_refs, dropped = [], set()
    for ref in found.refs:
        limit = ref.max_ref_age_ms or found.history.max_ref_age_ms or 2**63
        stays = ref.name == "main" or (ref.snapshot_id in time_of and now_ms - time_of[ref.snapshot_id] <= limit)
        kept_refs += [ref] if stays else []
        dropped |= set() if stays else {ref.name}
    keep, on_refs = set(), set()
    for ref in kept_refs:
        chain: list[int] = []
        one: int | None = ref.snapshot_id
        while one in time_of and one not in chain:
            chain.append(one)
            one = parent_of[one]
        keep |= set(chain[:1])
        if ref.kind is RefKind.TAG:
            on_refs |= set(chain[:1])
            continue
        on_refs |= set(chain)
        cutoff = now_ms - (age if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms)
        minimum = least if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
        first_to_go = next(
            (place for place, one in enumerate(chain) if place >= minimum and time_of[one] < cutoff), len(chain)
        )
        keep |= set(chain[:first_to_go])
    keep |= {one for one in time_of if one not in on_refs and time_of[one] >= now_ms - age}
    return set(time_of) - keep, dropped


@settings(max_examples=examples(150, soak=4000), deadline=None)
@given(found=tables(), hours=st.integers(0, 12), keep=st.integers(1, 4))
def test_the_plan_is_what_the_rules_say_for_any_history(found: TableMetadata, hours: int, keep: int):
    rules = policy(hours, keep)
    plan = retention.plan(found, rules, NOW)
    assert (gone(plan), set(plan.drop_refs)) == oracle(found, rules, NOW)


@settings(max_examples=examples(80, soak=2000), deadline=None)
@given(found=tables(), hours=st.integers(0, 12), keep=st.integers(1, 4))
def test_heads_of_kept_refs_stay_and_every_snapshot_is_counted(found, hours, keep):
    plan = retention.plan(found, policy(hours, keep), NOW)
    heads = {ref.snapshot_id for ref in found.refs if ref.name not in plan.drop_refs}
    kept = {int(snapshot.id) for snapshot in plan.keep}
    assert not heads & gone(plan)
    assert kept | gone(plan) == {entry.id for entry in found.snapshots}
    assert not kept & gone(plan)
    assert all(snapshot.why for snapshot in plan.keep)


@settings(max_examples=examples(50, soak=1000), deadline=None)
@given(found=tables(), hours=st.integers(0, 12))
def test_a_longer_retention_never_expires_more(found: TableMetadata, hours: int):
    shorter = gone(retention.plan(found, policy(hours), NOW))
    longer = gone(retention.plan(found, policy(hours + 1, keep=2), NOW))
    assert longer <= shorter
