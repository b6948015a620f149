"""Lists for people: the tables there are, the runs there were, and why one file stays or goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lakesweep.cli import screen
from lakesweep.model import run_document
from lakesweep.model.requests import KINDS

if TYPE_CHECKING:
    from lakesweep.cleanup.explain import Explanation
    from lakesweep.daemon.table_status import TableStatus
    from lakesweep.model.files import Candidate
    from lakesweep.ports.state import Hold, PlanHeader

ID_SHOWN = 8
"""Letters of a run's id on a terminal. Any beginning that names one run is taken."""
_STYLES = {"done": "green", "dry_run": "yellow", "refused": "red", "failed": "red"}


def show_tables(console: Console, tables: Iterable[TableStatus]) -> None:
    """One row a table, with its last run; below, what is wrong with some. On a terminal without the places."""
    found = list(tables)
    if not found:
        screen.line(console, "no tables")
        return
    wide = not console.is_terminal
    narrow, now = console.is_terminal and console.width < screen.NARROW, datetime.now(UTC)
    more = (*(() if narrow else ("a cycle takes",)), *(("location",) if wide else ()))
    whole = ("format", "last run", "outcome")
    columns = ("table", *whole, "deletable", *more)
    shown = screen.table(console, *columns, numbers=("deletable",), paths=("table", "location"), whole=whole)
    for status in found:
        last = status.last_run
        started = last["started_at"] if last else None
        shown.add_row(
            screen.text(status.ref.label),
            status.ref.format.value,
            screen.age(started, now) if narrow else screen.moment(started),
            _state(status),
            screen.size(run_document.deletable_bytes(last)) if last else "-",
            *([] if narrow else [screen.text(_cycle(last))]),
            *([screen.text(status.location or "-")] if wide else []),
        )
    console.print(shown)
    if not wide and len(found) == 1 and found[0].location:
        screen.long_line(console, found[0].location)
    for status in found:
        if status.cadence:
            text = (
                f"{status.ref.label}: next expiry {screen.moment(status.cadence.next_look)}, next listing "
                f"{screen.moment(status.cadence.next_listing)}: {status.cadence.why}"
            )
            screen.long_line(console, text, "dim")
        if status.problem:
            screen.long_line(console, f"{status.ref.label}: {status.problem}", "red")


def _cycle(last: run_document.Run | None) -> str:
    """What the next cycle is expected to ask of its store, and to cost."""
    expected = run_document.next_cycle(last)
    if expected is None:
        return "-"
    requests = sum(expected[kind] for kind in KINDS)
    price = f", {expected['cost']:.6f} {expected['currency']}" if expected["cost"] else ""
    return f"{screen.counted(requests, 'request')}{price}"


def _state(status: TableStatus) -> Text:
    last = status.last_run
    outcome = screen.text("unreadable", "red") if status.problem else _outcome(last["outcome"] if last else None)
    return Text.assemble(outcome, ", ", screen.text("held", "yellow")) if status.paused else outcome


def show_runs(console: Console, runs: Iterable[run_document.Run], table: str | None = None) -> None:
    found = list(runs)
    if not found:
        screen.line(console, f"no runs of {table}" if table else "no runs")
    elif console.is_terminal:
        _show_short_runs(console, found)
    else:
        _show_whole_runs(console, found)


def _show_short_runs(console: Console, runs: Iterable[run_document.Run]) -> None:
    """What fits into a terminal: the beginning of an id names a run, and a refusal's code stands for its reason."""
    numbers = ("deletable", "deleted")
    narrow, now = console.width < screen.NARROW, datetime.now(UTC)
    columns = ("run", "table", "age" if narrow else "started", "outcome")
    shown = screen.table(console, *columns, *numbers, numbers=numbers, paths=("table",), whole=("run", *columns[2:]))
    for run in runs:
        refused = run["refused"]
        shown.add_row(
            screen.text(run["run_id"][:ID_SHOWN]),
            screen.text(run["table"]),
            screen.age(run["started_at"], now) if narrow else screen.moment(run["started_at"]),
            screen.text(refused["code"], "red") if refused else _short_outcome(run),
            screen.size(run["orphans"]["bytes"]),
            screen.size(run["deleted"]["bytes"]),
        )
    console.print(shown)


def _show_whole_runs(console: Console, runs: Iterable[run_document.Run]) -> None:
    """Every field, one line a run: another program may read it."""
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
    console.print(shown)


def show_holds(console: Console, holds: Iterable[Hold], ended: Iterable[Hold] = ()) -> None:
    shown = screen.table(console, "scope", "since", "ends", "by", "reason", paths=("scope", "by", "reason"))

    def add(hold: Hold, ends: str, style: str = "") -> None:
        row = (hold.scope, screen.moment(hold.since), ends, hold.by, hold.reason or "")
        shown.add_row(*(screen.text(one, style) for one in row))

    for hold in holds:
        add(hold, screen.moment(hold.ends_at) if hold.ends_at else "when resumed")
    for hold in ended:
        add(hold, f"ended {screen.moment(hold.ends_at)}", "dim")
    console.print(shown if shown.row_count else screen.text("nothing is held"))


def show_stored_plan(console: Console, run: run_document.Run, header: PlanHeader, first: Sequence[Candidate]) -> None:
    console.print(Text.assemble(screen.text(header.table, "bold cyan"), f"  {run['format'].value}"))
    line = f"run {header.run_id}, planned {screen.moment(header.created_at)}: "
    why = f" ({run['reason']})" if run["reason"] else ""
    console.print(screen.text(line), _outcome(run["outcome"]), screen.text(why), sep="", soft_wrap=True)
    screen.long_line(console, f"digest {header.digest}")
    screen.line(console, f"{screen.counted(header.candidates, 'file')} to delete, {screen.size(header.bytes)}")
    shown = screen.table(console, "size", "modified", "kind", "reason", "file", numbers=("size",), paths=("file",))
    for row in first:
        details = (screen.size(row.size_bytes), screen.moment(row.modified_at), row.kind, row.reason.value, row.path)
        shown.add_row(*map(screen.text, details))
    if shown.row_count:
        screen.block(console, shown)
    screen.and_more(console, header.candidates - len(first), "file")


def show_explanation(console: Console, explanation: Explanation) -> None:
    verdict = explanation.verdict.value if explanation.verdict else "not stored"
    screen.long_line(console, explanation.path, "bold")
    screen.line(console, f"{verdict}, in {explanation.table.label}", "cyan")
    for sentence in explanation.sentences:
        screen.long_line(console, f"  - {sentence}")
    if explanation.deletable_from is not None:
        screen.line(console, f"deletable from {screen.moment(explanation.deletable_from)}", "yellow")


def _short_outcome(run: run_document.Run) -> Text:
    """Without a column for the reason, nothing else shows that a run restored files."""
    is_restore = run["restored"] is not None and run["outcome"] == "done"
    return screen.text("restored", _STYLES["done"]) if is_restore else _outcome(run["outcome"])


def _outcome(outcome: str | None) -> Text:
    return screen.text(outcome or "-", _STYLES.get(outcome or "", ""))
