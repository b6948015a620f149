"""The screens of the demo that no other command has: the lake, the two engines, what a cleanup left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakesweep.cli import render, screen
from lakesweep.cli.demo.tables import HEAD, DemoTable, Rows
from lakesweep.model.run import CleanupRun, Outcome, Restored

if TYPE_CHECKING:
    from rich.console import Console

    from lakesweep.cli.demo.lake import DemoLake

_STEPS = {
    "list": "every stored file is listed",
    "mark": "then the table's head is read",
    "read": "manifests and checkpoints are decoded",
    "judge": "both are joined: a verdict for each file",
    "look again": "what seems missing is checked once more",
    "write": "the plan is counted and written",
}
_PART_OF = {"plan": "read", "count": "write", "look_again": "look again"}
"""Phases of an engine that are shown as part of another, or under another name."""
_START = "start"


def title(console: Console, text: str, subtitle: str) -> None:
    console.print()
    screen.line(console, f"=== {text}", "bold")
    screen.line(console, subtitle, "dim")
    console.print()


def command(console: Console, text: str) -> None:
    screen.line(console, f"$ {text}", "bold green")


def lake(console: Console, built: DemoLake) -> None:
    shown = screen.table(console, "table", "format", "what happened to it")
    for table in built.tables:
        shown.add_row(table.label, table.format, table.about)
    console.print(shown)
    screen.line(console, _size(*built.size()))


def engines(console: Console, inprocess: CleanupRun, planned: CleanupRun, no_spark: str | None) -> bool:
    """Which engine planned a table and why, and the time of every step in both. True if both plans are the same."""
    runs = {"in-process": inprocess} if no_spark else {"in-process": inprocess, "Spark": planned}
    if no_spark:
        screen.line(console, f"{no_spark}. So this table is planned in-process too.", "yellow")
    elif planned.engine is not None:
        screen.line(console, f"{planned.table.label}  {planned.engine.kind}: {planned.engine.why}")
    times = {name: _steps(run) for name, run in runs.items()}
    shown = screen.table(console, "step", *runs, "what happens", numbers=tuple(runs))
    about = {_START: "the table is loaded" + ("" if no_spark else "; Spark starts"), **_STEPS, "total": ""}
    for step, what in about.items():
        shown.add_row(step, *(f"{found.get(step, 0.0):.2f} s" for found in times.values()), what)
    screen.block(console, shown)
    return True if no_spark else _same_plan(console, inprocess, planned)


def _same_plan(console: Console, one: CleanupRun, other: CleanupRun) -> bool:
    if one.plan is None or other.plan is None or one.plan.digest != other.plan.digest:
        why = other.reason if other.outcome is Outcome.FAILED else "the plans differ"
        screen.line(console, f"Something is wrong: {why}", "bold red")
        return False
    files = screen.counted(one.plan.candidates.files, "file")
    screen.line(console, f"Both plans name the same {files}: digest {one.plan.digest[:16]}", "green")
    return True


def _steps(run: CleanupRun) -> dict[str, float]:
    steps: dict[str, float] = {}
    for phase, seconds in (run.plan.timings if run.plan else {}).items():
        step = _PART_OF.get(phase, phase)
        steps[step] = steps.get(step, 0.0) + seconds
    total = (run.finished_at - run.started_at).total_seconds() if run.finished_at else 0.0
    return {**steps, _START: max(0.0, total - sum(steps.values())), "total": total}


def cleaned(console: Console, done: list[CleanupRun]) -> None:
    columns = ("table", "engine", "outcome", "expired", "deleted files")
    shown = screen.table(console, *columns, numbers=columns[3:], paths=columns[:1])
    for run in done:
        expired = screen.count(len(run.expired_snapshots))
        if run.expired_partitions:
            expired = f"{expired}, {screen.counted(len(run.expired_partitions), 'partition')}"
        deleted = f"{run.deletion.deleted.files} ({screen.size(run.deletion.deleted.bytes)})"
        engine, outcome = run.engine.kind if run.engine else "-", run.outcome.value if run.outcome else "?"
        style = "" if run.outcome is Outcome.DONE else "yellow"
        shown.add_row(run.table.label, engine, outcome, expired, deleted, style=style)
    console.print(shown)
    for run in done:
        if run.outcome is not Outcome.DONE:
            console.print()
            screen.line(console, run.table.label, "bold cyan")
            render.show_trouble(console, run)


def taken_back(console: Console, built: DemoLake, label: str, result: Restored, before: Rows) -> bool:
    """True when every file is back and readers see what they saw before the run."""
    command(console, f"lakesweep restore {result.of[:8]}")
    files = screen.counted(result.restored.files, "file")
    screen.line(console, f"{files} restored ({screen.size(result.restored.bytes)}); the table is held")
    missing = [path for path in built.planted[label] if not path.exists()]
    same = built.rows()[label] == before
    if missing or not same or result.not_restorable:
        screen.line(console, f"Something is wrong: {label} is not what it was before its run", "bold red")
        return False
    screen.line(console, "Every file is back, and every version reads as before. Then it is cleaned again.")
    return True


def afterwards(
    console: Console, built: DemoLake, before: dict[str, Rows], size: tuple[int, int], done: list[CleanupRun]
) -> bool:
    """Before and after. True when every reader sees the rows that it must see and every planted orphan is gone."""
    title(console, "7. Afterwards", f"{_size(*size)}  ->  {_size(*built.size())}")
    after = built.rows()
    shown = screen.table(console, "table", "rows that readers see")
    lost = []
    for table in built.tables:
        expected = table.expected(before[table.label])
        lost += [] if after[table.label] == expected else [table.label]
        shown.add_row(table.label, _rows(table, before[table.label], after[table.label]))
    console.print(shown)
    left = [path for planted in built.planted.values() for path in planted if path.exists()]
    trouble = [f"{label} does not read as it should" for label in lost] + [f"{path} is still there" for path in left]
    trouble += [f"{run.table.label}: {run.reason}" for run in _unexpected(built, done)]
    for sentence in trouble:
        screen.line(console, f"Something is wrong: {sentence}", "bold red")
    if not trouble:
        screen.line(console, "Every table reads the same rows; every planted orphan is gone.", "bold green")
    return not trouble


def _rows(table: DemoTable, before: Rows, after: Rows) -> str:
    if not after:
        return "unreadable, as before" if table.damaged else "unreadable"
    counts = {state: f"{len(ids):,}" for state, ids in after.items()}
    if table.expiring:
        counts[HEAD] = f"{len(before[HEAD]):,} - {len(table.expiring)} of the expired partition"
    return ", ".join(f"{state} {count}" for state, count in counts.items())


def _unexpected(built: DemoLake, done: list[CleanupRun]) -> list[CleanupRun]:
    """The damaged table must be refused, and nothing else."""
    damaged = {table.label for table in built.tables if table.damaged}
    wanted = {True: Outcome.REFUSED, False: Outcome.DONE}
    return [run for run in done if run.outcome is not wanted[run.table.label in damaged]]


def _size(files: int, size_bytes: int) -> str:
    return f"{screen.counted(files, 'file')}, {screen.size(size_bytes)}"
