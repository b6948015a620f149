"""The report of a whole lake, put together from what is known of its tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders.reports import FREE, GB, NOW, figures, known, planned, report
from tests.unit.cli import examples

from lakesweep.admin import report_page
from lakesweep.cleanup.lake_report import Price
from lakesweep.model.files import Tally
from lakesweep.model.run import Outcome, Refusal


def test_tables_come_by_what_could_be_deleted_and_sums_by_tenant_and_dataset():
    found = report(
        known("a/x/small", planned(10)), known("b/y/large", planned(500, 500)), known("a/x/none"), price=FREE
    )
    assert [row["table"] for row in found["tables"]] == ["b/y/large", "a/x/small", "a/x/none"]
    assert [(part["name"], part["waste_bytes"]) for part in found["tenants"]] == [("b", 1000), ("a", 10)]
    assert [(part["name"], part["tables"]) for part in found["datasets"]] == [("b/y", 1), ("a/x", 2)]
    assert found["totals"]["waste_bytes"] == 1010
    assert found["totals"]["bytes"]["expired"] == 500
    assert (found["totals"]["tables"], found["totals"]["planned"]) == (3, 2)
    assert found["tables"][2]["bytes"] is None


def test_what_was_freed_and_retained_is_reported_by_tenant_and_dataset():
    runs = [figures(1, 9, 5, kept=7, table="a/x/t"), figures(2, 9, 1, table="a/y/t"), figures(40, 9, 9, table="a/x/t")]
    runs.append(replace(figures(0, table="a/x/t", made_plan=False), restored_bytes=3))  # of those 7
    found = report(known("a/x/t"), known("a/y/t"), known("b/x/t"), runs=runs)
    told = {
        part["name"]: (part["freed_bytes_30_days"], part["retained_bytes_30_days"])
        for part in [*found["tenants"], *found["datasets"]]
    }
    assert told == {"a": (6, 4), "b": (0, 0), "a/x": (5, 4), "a/y": (1, 0), "b/x": (0, 0)}
    assert (found["totals"]["freed_bytes_30_days"], found["totals"]["retained_bytes_30_days"]) == (6, 4)


def test_what_was_deleted_is_waste_no_more():
    run = planned(600, 400, outcome=Outcome.DONE)
    some = replace(run, deletion=replace(examples.done().deletion, deleted=Tally(files=1, bytes=500), already_gone=0))
    row = report(known(run=some))["tables"][0]
    assert (row["bytes"]["orphan"], row["bytes"]["expired"]) == (300, 200)
    everything = replace(some, deletion=replace(some.deletion, deleted=Tally(files=2, bytes=1000)))
    row = report(known(run=everything))["tables"][0]
    assert (row["waste_bytes"], row["files"]["orphan"], row["files"]["expired"]) == (0, 0, 0)


def test_what_was_restored_after_the_plan_is_waste_again():
    run = planned(600, 400, outcome=Outcome.DONE, started_at=NOW - timedelta(days=2))
    taken = replace(run, deletion=replace(examples.done().deletion, deleted=Tally(files=2, bytes=1000), already_gone=0))
    back = replace(figures(1, made_plan=False), restored_bytes=500, restored_files=1)
    before = replace(figures(3, made_plan=False), restored_bytes=7, restored_files=7)  # the plan has seen these
    found = report(known(run=taken), runs=[before, figures(2, 1000, kept=1000), back])
    row = found["tables"][0]
    assert (row["waste_bytes"], row["bytes"]["orphan"], row["bytes"]["expired"]) == (500, 300, 200)
    assert row["files"]["orphan"] + row["files"]["expired"] == 1
    assert [day["waste_bytes"] for day in found["trend"]] == [0, 500, 500]


def test_what_a_run_without_a_listing_deleted_is_expired_waste_no_more():
    run = planned(600, 400, started_at=NOW - timedelta(days=2))
    seen = replace(figures(2, 1000), expired_bytes=400)
    taken = replace(figures(1, freed=100, made_plan=False), deleted_files=1)
    found = report(known(run=run), runs=[seen, taken])
    assert (found["tables"][0]["bytes"]["orphan"], found["tables"][0]["bytes"]["expired"]) == (600, 300)
    assert (found["tables"][0]["files"]["orphan"], found["tables"][0]["files"]["expired"]) == (1, 0)
    # It also deletes what expired since the plan was made, never what was unreferenced then.
    found = report(known(run=run), runs=[seen, taken, replace(taken, deleted_bytes=9000, started_at=NOW)])
    assert (found["tables"][0]["bytes"]["orphan"], found["tables"][0]["bytes"]["expired"]) == (600, 0)
    assert [day["waste_bytes"] for day in found["trend"]] == [1000, 900, 600]


def test_waste_is_reported_in_money_only_where_there_is_a_price():
    table = known(run=planned(10 * GB))
    assert report(table, price=Price(per_gb_month=0.023, currency="EUR"))["tables"][0]["cost_per_month"] == 0.23
    assert report(table)["totals"]["cost_per_month"] is None


@pytest.mark.parametrize(
    ("table", "code", "person"),
    [
        (known(run=planned(1), unreadable="no answer"), "unreadable", True),
        (known(run=planned(1), held="since noon", held_scope="acme"), "paused", True),
        (known(run=examples.refused("ceiling_files", "too many")), "ceiling_files", True),
        (known(run=examples.refused("busy", "another run")), "busy", False),
        (known(run=examples.failed()), "failed", True),
        (known(), "never_planned", False),
        (known(run=planned(1), enabled=False, dry_run=True), "disabled", False),
        (known(run=planned(1), dry_run=True), "dry_run", False),
        (known(run=planned(1)), None, False),
    ],
)
def test_what_stands_in_the_way_is_reported_with_its_code(table, code, person):
    found = report(table)
    row = found["tables"][0]
    assert (row["why"]["code"] if row["why"] else None) == code
    assert bool(row["problem"]) == (code is not None)
    assert bool(row["why"] and row["why"]["needs_person"]) == person
    assert found["totals"]["problems"] == ({code: 1} if code else {})


def test_only_a_ceiling_can_be_approved_and_only_a_pause_resumed():
    above = examples.planned(outcome=Outcome.REFUSED, refusal=Refusal(code="ceiling_share", reason="61 %"))
    assert report(known(run=above))["tables"][0]["why"]["approvable"]
    assert not report(known(run=examples.refused()))["tables"][0]["why"]["approvable"]
    assert report(known(held="x", held_scope="acme/*"))["tables"][0]["why"]["scope"] == "acme/*"


def test_the_trend_carries_each_table_s_newest_plan_on():
    runs = [
        figures(3, 100),
        figures(3, 7, table="acme/prod/other"),
        figures(2, 0, made_plan=False),  # it failed: nobody knows what there is
        figures(1, 120, 120),
        figures(0, 5),
        figures(0, 99, table="gone/from/settings"),
    ]
    found = report(known(), known("acme/prod/other"), runs=runs)
    assert [(day["date"], day["waste_bytes"], day["freed_bytes"]) for day in found["trend"]] == [
        ("2026-03-07", 107, 0),
        ("2026-03-08", 107, 0),
        ("2026-03-09", 7, 120),
        ("2026-03-10", 12, 0),
    ]
    assert found["totals"]["deleted_bytes_30_days"] == 120
    kept = report(known(), runs=[figures(1, 100, 30, kept=70)])["totals"]
    assert [kept[f"{word}_bytes_30_days"] for word in ("deleted", "freed", "retained")] == [100, 30, 70]
    assert report(known(), runs=[figures(1, made_plan=False)])["trend"] == []


def test_a_page_of_the_report_is_searched_filtered_and_sorted():
    whole = report(*(known(f"t{number % 7}/d/table-{number:05}", planned(number)) for number in range(10_000)),
                   known("t0/d/held", held="x", held_scope="t0"))  # fmt: skip
    page = report_page.of(whole, report_page.Wanted(q="TABLE-0999", limit=3))
    assert [row["table"] for row in page["tables"]] == ["t3/d/table-09999", "t2/d/table-09998", "t1/d/table-09997"]
    assert (page["matching"], page["next"], page["totals"]["tables"]) == (10, 3, 10_001)
    last = report_page.of(whole, report_page.Wanted(offset=10_000))
    assert (len(last["tables"]), last["next"]) == (1, None)
    assert report_page.of(whole, report_page.Wanted(problem="person"))["tables"][0]["table"] == "t0/d/held"
    assert report_page.of(whole, report_page.Wanted(problem="busy"))["matching"] == 0
    assert report_page.of(whole, report_page.Wanted(sort="problem"))["tables"][0]["table"] == "t0/d/held"
    assert report_page.of(whole, report_page.Wanted(tenant="t1"))["matching"] == 1429
    by_name = report_page.of(whole, report_page.Wanted(sort="table", descending=True, limit=1))
    assert by_name["tables"][0]["table"] == "t6/d/table-09995"
