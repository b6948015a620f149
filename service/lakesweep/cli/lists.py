"""Lists for people: the tables there are, the runs there were, and why one file stays or goes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lakesweep.cli import screen
from lakesweep.model import run_document

if TYPE_CHECKING:
    from lakesweep.cleanup.explain import Explanation
    from lakesweep.daemon.table_status import TableStatus

_STYLES = {"done": "green", "dry_run": "yellow", "refused": "red", "failed": "red"}


def show_tables(console: Console, tables: Iterable[TableStatus]) -> None:
    """One row a table, with its last run or what is wrong with it."""
    shown = screen.table(
        console, "table", "format", "last run", "outcome", "location", paths=("table", "outcome", "location")
    )
    for status in tables:
        last = status.last_run
        outcome = screen.text(status.problem, "red") if status.problem else _outcome(last["outcome"] if last else None)
        if status.paused:
            outcome = Text.assemble(outcome, ", ", screen.text("paused", "yellow"))
        shown.add_row(
            screen.text(status.ref.label),
            status.ref.format.value,
            screen.moment(last["started_at"] if last else None),
            outcome,
            screen.text(status.location or "-"),
        )
    console.print(shown if shown.row_count else screen.text("no tables"))


def show_runs(console: Console, runs: Iterable[run_document.Run], table: str | None = None) -> None:
    """One row a run, newest first; of one table, if that was asked for."""
    shown = screen.table(
        console, "run", "table", "started", "outcome", "deleted", "size", "reason",
        numbers=("deleted", "size"), paths=("run", "table", "reason"),
    )  # fmt: skip
    for run in runs:
        deleted = run["deleted"]
        shown.add_row(
            screen.text(run["run_id"]),
            screen.text(run["table"]),
            screen.moment(run["started_at"]),
            _outcome(run["outcome"]),
            screen.count(deleted["count"]),
            screen.size(deleted["bytes"]),
            screen.text(run["reason"] or ""),
        )
    nothing = f"no runs of {table}" if table else "no runs"
    console.print(shown if shown.row_count else screen.text(nothing))


def show_explanation(console: Console, explanation: Explanation) -> None:
    """The verdict, the evidence, and from when the file may go."""
    verdict = explanation.verdict.value if explanation.verdict else "not stored"
    console.print(screen.text(explanation.path, "bold"), soft_wrap=True)
    console.print(screen.text(f"{verdict}, in {explanation.table.label}", "cyan"))
    for sentence in explanation.sentences:
        console.print(screen.text(f"  - {sentence}"), soft_wrap=True)
    if explanation.deletable_from is not None:
        console.print(screen.text(f"deletable from {screen.moment(explanation.deletable_from)}", "yellow"))


def _outcome(outcome: str | None) -> Text:
    return screen.text(outcome or "-", _STYLES.get(outcome or "", ""))
