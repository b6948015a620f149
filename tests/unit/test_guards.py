"""Each guard says no to what it is there for, and to nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.cleanup import guards
from lakesweep.model.files import OrphanPlan, Tally, Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import Ceilings, CleanupPolicy, OnMissing
from lakesweep.model.snapshot import Snapshot
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.table import FileKind, MatchBy, TableState

NOW = datetime(2026, 5, 1, tzinfo=UTC)
REF = TableRef(tenant=TenantId("acme"), dataset="shop", name="orders", format=FormatName.ICEBERG)
POLICY = CleanupPolicy()


class AnyLayout:
    match_by = MatchBy.ADDRESS

    def classify(self, path):
        return FileKind(kind="data")


STATE = TableState(
    ref=REF,
    head="h1",
    table_uuid="u1",
    location=Location.parse("s3://b/acme/orders"),
    roots=(Location.parse("s3://b/acme/orders"),),
    snapshots=(Snapshot(id="1", committed_at=NOW),),
    layout=AnyLayout(),
    counted_files=80,
)
PLAN = OrphanPlan(
    head="h1",
    cutoff=NOW,
    verdicts={Verdict.LIVE: Tally(files=90, bytes=900), Verdict.ORPHAN: Tally(files=10, bytes=100)},
    candidates=Tally(files=10, bytes=100),
    by_kind={},
    by_reason={},
    missing=(),
    missing_count=0,
    references=90,
    matched=90,
    rows_path="plan.parquet",
    digest="d",
    engine="inprocess",
)


def code(plan=PLAN, state=STATE, policy=POLICY, foreign=None):
    refusal = guards.check_plan(plan, state, policy, foreign)
    return refusal.code if refusal else None


def test_a_sound_plan_passes():
    assert code() is None


def test_no_reference_at_all_while_snapshots_exist_is_refused():
    assert code(replace(PLAN, references=0, matched=0)) == "empty_live_set"


def test_a_table_without_snapshots_may_have_no_references():
    state = replace(STATE, snapshots=(), counted_files=None)
    assert code(replace(PLAN, references=0, matched=0), state) is None


def test_fewer_references_than_the_tables_own_count_is_refused():
    assert code(replace(PLAN, references=79, matched=79)) == "short_live_set"


def test_no_listed_object_matching_any_reference_is_refused():
    assert code(replace(PLAN, matched=0)) == "nothing_matches"


def test_missing_live_files_stop_the_table_unless_the_operator_says_report():
    plan = replace(PLAN, missing=("s3://b/acme/orders/data/x",), missing_count=1)
    assert code(plan) == "missing_live_files"
    assert code(plan, policy=CleanupPolicy(on_missing=OnMissing.REPORT)) is None


def test_a_missing_file_with_a_candidates_name_stops_even_then():
    plan = replace(PLAN, missing=("x",), missing_count=1, missing_clash=("x.parquet",))
    assert code(plan, policy=CleanupPolicy(on_missing=OnMissing.REPORT)) == "missing_clash"


def test_evidence_of_another_table_is_refused():
    assert code(foreign="another table's metadata is here") == "foreign_table"


@pytest.mark.parametrize(
    ("ceilings", "expected"),
    [
        (Ceilings(files=9), "ceiling_files"),
        (Ceilings(files=10), None),
        (Ceilings(bytes=99), "ceiling_bytes"),
        (Ceilings(bytes=100), None),
        (Ceilings(share=0.09, share_min_files=100), "ceiling_share"),
        (Ceilings(share=0.10, share_min_files=100), None),
        (Ceilings(share=0.01, share_min_files=101), None),
    ],
)
def test_ceilings_hold_exactly(ceilings, expected):
    assert code(policy=CleanupPolicy(ceilings=ceilings)) == expected


def test_clocks_that_disagree_are_refused():
    assert guards.check_clock(POLICY, NOW, NOW + timedelta(minutes=14)) is None
    refusal = guards.check_clock(POLICY, NOW, NOW - timedelta(minutes=16))
    assert refusal is not None
    assert refusal.code == "clock_skew"


def test_the_slower_clock_and_the_longer_age_decide_the_cutoff():
    slow = NOW - timedelta(minutes=10)
    assert guards.cutoff(POLICY, timedelta(0), NOW, slow) == slow - timedelta(hours=24)
    assert guards.cutoff(POLICY, timedelta(0), slow, NOW) == slow - timedelta(hours=24)
    assert guards.cutoff(POLICY, timedelta(days=7), NOW, NOW) == NOW - timedelta(days=7)


@pytest.mark.parametrize(
    ("theirs", "refused"),
    [
        ("s3://b/acme/orders", True),
        ("s3a://b/acme/orders/nested", True),
        ("s3://b/acme", True),
        ("s3://b/acme/orders2", False),
    ],
)
def test_tables_that_share_a_place_are_refused(theirs, refused):
    other = replace(REF, name="other")
    refusal = guards.check_overlap(STATE, {REF: STATE.roots, other: (Location.parse(theirs),)})
    assert (refusal is not None) is refused


@pytest.mark.parametrize(
    ("later", "refused"),
    [
        ({}, False),
        ({"head": "h2", "snapshots": ()}, False),
        ({"minimum_age": timedelta(hours=1)}, False),
        ({"minimum_age": timedelta(days=9)}, True),
        ({"table_uuid": "u2"}, True),
        ({"roots": (Location.parse("s3://b/acme/orders2"),)}, True),
    ],
)
def test_a_table_that_was_listed_as_another_is_refused(later, refused):
    listed = replace(STATE, minimum_age=timedelta(days=7))
    refusal = guards.check_stayed(listed, replace(listed, **later))
    assert (refusal is not None and refusal.code == "table_changed") is refused


def test_a_table_outside_its_tenants_root_is_refused():
    assert guards.check_tenant_root(STATE, Location.parse("s3://b/acme")) is None
    assert guards.check_tenant_root(STATE, STATE.location) is None
    refusal = guards.check_tenant_root(STATE, Location.parse("s3://b/acm"))
    assert refusal is not None
    assert refusal.code == "outside_root"


@pytest.mark.parametrize(
    "unsafe",
    [
        {"grace_period": timedelta(hours=23)},
        {"grace_period": timedelta(hours=-1), "allow_short_grace": True},
        {"min_snapshots_to_keep": 0},
        {"max_snapshot_age": timedelta(hours=-1)},
        {"batch_size": 0},
        {"max_concurrent_deletions": 0},
        {"ceilings": Ceilings(share=0)},
    ],
)
def test_an_unsafe_policy_cannot_be_built(unsafe):
    with pytest.raises(ValueError, match=r"must|below"):
        CleanupPolicy(**unsafe)


def test_a_ghost_of_which_one_file_is_used_is_none():
    assert code(state=replace(STATE, goes_whole=True)) == "ghost_claimed"
    assert code() is None
