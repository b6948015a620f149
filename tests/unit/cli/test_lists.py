"""Lists of tables and runs, and explanations, for people."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.cli import examples

from lakesweep.cleanup import report
from lakesweep.cleanup.explain import Explanation
from lakesweep.cli import lists, screen
from lakesweep.daemon.table_status import TableStatus
from lakesweep.model.files import DeletionReport, Tally, Verdict
from lakesweep.model.run import Restored
from lakesweep.model.run_document import deletable_bytes


def plain(show, value) -> str:
    out = io.StringIO()
    show(Console(file=out, width=100_000, markup=False, highlight=False, emoji=False), value)
    return out.getvalue()


def test_runs_are_listed_from_their_documents():
    documents = [report.run_document(run) for run in (examples.done(), examples.refused())]
    text = plain(lists.show_runs, documents)
    for words in ("acme/prod/orders", "2026-03-01 12:00 UTC", "done", "refused", "two tables share a place", "2.0 KiB"):
        assert words in text
    assert plain(lists.show_runs, []).strip() == "no runs"


def test_tables_are_listed_with_their_trouble():
    last = report.run_document(examples.done())
    last["requests"]["sent"] |= {"list": 3, "get": 4, "cost": 0.000017}
    good = TableStatus(ref=examples.REF, location="s3://x", problem=None, last_run=last, paused=True)
    bad = TableStatus(ref=examples.REF, location=None, problem="cannot read it", last_run=None, paused=False)
    text = plain(lists.show_tables, [good, bad])
    assert "done, held" in text
    assert "7 requests, 0.000017 USD" in text
    assert "cannot read it" in text
    assert plain(lists.show_tables, []).strip() == "no tables"


@pytest.mark.parametrize(
    ("run", "left"),
    [
        (examples.planned(), 3072),
        (examples.done(), 0),
        (replace(examples.half_done(), deletion=DeletionReport(deleted=Tally(files=1, bytes=1024))), 2048),
        (examples.planned(plan=None, restored=Restored(of="r0", restored=Tally(files=2, bytes=2048))), 2048),
    ],
    ids=["planned", "done", "half done", "restored"],
)
def test_a_table_is_listed_with_what_its_last_run_left_to_delete(run, left):
    assert deletable_bytes(report.run_document(run)) == left
    status = TableStatus(ref=examples.REF, location=None, problem=None, last_run=report.run_document(run), paused=False)
    assert f" {screen.size(left)} " in plain(lists.show_tables, [status])


def test_an_explanation_shows_verdict_evidence_and_date():
    explanation = Explanation(
        path="s3://x/a",
        table=examples.REF,
        verdict=Verdict.YOUNG,
        sentences=("one", "two"),
        deletable_from=examples.NOW,
    )
    assert plain(lists.show_explanation, explanation).splitlines() == [
        "s3://x/a",
        "young, in acme/prod/orders",
        "  - one",
        "  - two",
        "deletable from 2026-03-01 12:00 UTC",
    ]
