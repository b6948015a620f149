"""Lists of tables and runs, and explanations, for people."""

import io

from rich.console import Console
from tests.unit.cli import examples

from lakesweep.cleanup import report
from lakesweep.cleanup.explain import Explanation
from lakesweep.cli import lists
from lakesweep.daemon.table_status import TableStatus
from lakesweep.model.files import Verdict


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
    assert "done, paused" in text
    assert "7 requests, 0.000017 USD" in text
    assert "cannot read it" in text
    assert plain(lists.show_tables, []).strip() == "no tables"


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
