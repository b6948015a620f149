"""Many tables or runs, one line each: what could go, what would expire, what was refused. Fits into 80 columns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console

from lakesweep.cli import lists, render, screen
from lakesweep.model.files import Reason, Tally
from lakesweep.model.refusal import remedy
from lakesweep.model.run import CleanupRun, Outcome

REASONS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Which tables a person wants to see, and how."""

    details: bool
    outcome: Outcome | None
    refused: bool

    async def show(
        self,
        console: Console,
        runs: AsyncIterator[CleanupRun],
        in_full: Callable[[CleanupRun], Awaitable[None]],
        in_lines: Callable[[Sequence[CleanupRun]], None],
    ) -> bool:
        """Tables in full come one by one; lines of many come together, when all have ended. False if there are none."""
        shown: list[CleanupRun] = []
        async for run in runs:
            if self.outcome in (None, run.outcome) and (not self.refused or is_refused(run)):
                shown.append(run)
                if self.details:
                    await in_full(run)
        if self.details:
            render.show_sum(console, shown)
        elif len(shown) == 1:
            await in_full(shown[0])
        elif shown:
            in_lines(shown)
        return bool(shown)


class RunOrder(StrEnum):
    """What comes first among tables that were run."""

    TABLE = "table"
    DELETABLE = "deletable"
    DELETED = "deleted"


class PlanSort(StrEnum):
    """What comes first among plans."""

    TABLE = "table"
    DELETABLE = "deletable"
    EXPIRED = "expired"


_KEYS: dict[PlanSort, Callable[[CleanupRun], int | str]] = {
    PlanSort.TABLE: lambda run: run.table.label,
    PlanSort.DELETABLE: lambda run: -_deletable(run).bytes,
    PlanSort.EXPIRED: lambda run: -_expired(run).bytes,
}


def show_plans(console: Console, runs: Iterable[CleanupRun], sort: PlanSort | None) -> None:
    ordered = sorted(runs, key=_KEYS[sort]) if sort else list(runs)
    numbers = ("deletable", "files", "expired")
    shown = screen.table(console, "table", *numbers, "refused", numbers=numbers, paths=("table",), whole=("refused",))
    for run in ordered:
        unknown = run.plan is None
        shown.add_row(
            screen.text(run.table.label),
            "-" if unknown else screen.size(_deletable(run).bytes),
            "-" if unknown else screen.count(_deletable(run).files),
            "-" if unknown else screen.size(_expired(run).bytes),
            screen.text(_code(run) or "", "red"),
        )
    console.print(shown)
    _reasons(console, ordered)
    console.print()
    render.show_sum(console, ordered)
    screen.line(console, "  `lakesweep plan TARGET` shows one table in full, --details shows all", "dim")


_RUN_KEYS: dict[RunOrder, Callable[[CleanupRun], int | str]] = {
    RunOrder.TABLE: lambda run: run.table.label,
    RunOrder.DELETABLE: lambda run: -_deletable(run).bytes,
    RunOrder.DELETED: lambda run: -run.deletion.deleted.bytes,
}


def show_runs(console: Console, runs: Iterable[CleanupRun], order: RunOrder | None) -> None:
    ordered = sorted(runs, key=_RUN_KEYS[order]) if order else list(runs)
    numbers = ("deletable", "deleted", "files")
    columns = ("run", "table", *numbers, "outcome")
    shown = screen.table(console, *columns, numbers=numbers, paths=("table",), whole=("run", "outcome"))
    for run in ordered:
        deleted, bad = run.deletion.deleted, is_refused(run)
        shown.add_row(
            screen.text(run.id[: lists.ID_SHOWN] if console.is_terminal else run.id),
            screen.text(run.table.label),
            "-" if run.plan is None else screen.size(_deletable(run).bytes),
            screen.size(deleted.bytes),
            screen.count(deleted.files),
            screen.text(_code(run) or (run.outcome.value if run.outcome else "?"), "red" if bad else "green"),
        )
    console.print(shown)
    _reasons(console, ordered)
    for run in ordered:
        if run.deletion.failed:
            first = run.deletion.failed[0]
            number = screen.counted(len(run.deletion.failed), "file")
            line = f"{run.table.label}: {number} could not be deleted, first {first.path}: {first.why}"
            screen.long_line(console, line, "red")
        if run.plan is not None and run.plan.missing_count and not is_refused(run):
            missing = screen.counted(run.plan.missing_count, "live file")
            screen.long_line(console, f"{run.table.label}: {missing} missing", "red")
    for warning in dict.fromkeys(run.store.warning for run in ordered if run.store and run.store.warning):
        screen.long_line(console, f"warning: {warning}", "yellow")
    console.print()
    render.show_sum(console, ordered)
    screen.line(console, "  `lakesweep show RUN` shows one run, --details shows all", "dim")


def is_refused(run: CleanupRun) -> bool:
    return _code(run) is not None


def _reasons(console: Console, runs: Sequence[CleanupRun]) -> None:
    refused = [run for run in runs if is_refused(run)]
    if refused:
        console.print()
    for run in refused[:REASONS_SHOWN]:
        screen.line(console, f"{run.table.label}: {_code(run)}: {run.reason or 'no reason was given'}")
        if run.refusal is not None and (advice := remedy(run.refusal.code, run.id[: lists.ID_SHOWN])):
            screen.line(console, f"  {advice}")
    screen.and_more(console, len(refused) - REASONS_SHOWN, "table")


def _code(run: CleanupRun) -> str | None:
    if run.refusal is not None:
        return run.refusal.code
    return "failed" if run.outcome is Outcome.FAILED else None


def _deletable(run: CleanupRun) -> Tally:
    return run.plan.candidates if run.plan else Tally()


def _expired(run: CleanupRun) -> Tally:
    return run.plan.by_reason.get(Reason.EXPIRED, Tally()) if run.plan else Tally()
