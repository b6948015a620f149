"""One table's plan or run, for people: what stays and why, what goes, what is wrong and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from lakesweep.cli import screen
from lakesweep.cli.remedies import remedy
from lakesweep.model.files import Candidate, OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.snapshot import ExpiryPlan

LINES_SHOWN = 20
"""Lines of one list; the count is always told. `--json` has all of them."""

_MEANING = {
    Verdict.LIVE: "referenced by a snapshot that stays",
    Verdict.YOUNG: "unreferenced, inside the grace period or not confirmed yet",
    Verdict.RESERVED: "kept by the format's own rules",
    Verdict.FOREIGN: "not a name the format writes: never deleted",
    Verdict.ORPHAN: "may be deleted",
}

_REASONS = {
    Reason.UNREFERENCED: "nothing refers to, older than the grace period",
    Reason.EXPIRED: "only the snapshots to expire refer to",
}

_OUTCOMES = {
    Outcome.DONE: ("done", "bold green"),
    Outcome.DRY_RUN: ("dry run: nothing was changed", "bold yellow"),
    Outcome.REFUSED: ("refused", "bold red"),
    Outcome.FAILED: ("failed", "bold red"),
}


def show_plan(console: Console, run: CleanupRun, first: Sequence[Candidate]) -> None:
    """A plan in full: it is shown even when it is refused. `first` are its first files."""
    _heading(console, run)
    if run.expiry is not None:
        _expiry(console, run.expiry)
    if run.plan is not None:
        _verdicts(console, run.plan)
        _kinds(console, run.plan)
        _files(console, run.plan, first)
        _missing(console, run.plan)
    _trouble(console, run)


def show_run(console: Console, run: CleanupRun, *, execute: bool) -> None:
    """What a run did, or would have done."""
    _heading(console, run)
    if run.plan is not None:
        _verdicts(console, run.plan)
    words, style = _OUTCOMES[run.outcome] if run.outcome else ("not finished", "bold red")
    console.print(screen.text(words, style))
    if run.outcome is Outcome.DRY_RUN:
        _would(console, run, execute=execute)
    else:
        _did(console, run)
    if run.plan is not None:
        _missing(console, run.plan)
    _trouble(console, run)


def show_sum(console: Console, runs: Sequence[CleanupRun]) -> None:
    """The last line, where there is more than one table."""
    if len(runs) < 2:
        return
    parts = [screen.counted(len(runs), "table")]
    for outcome, word in ((Outcome.REFUSED, "refused"), (Outcome.FAILED, "failed")):
        if found := sum(run.outcome is outcome for run in runs):
            parts.append(f"{found} {word}")
    found_orphans = sum((run.plan.candidates for run in runs if run.plan), Tally())
    deleted = sum((run.deletion.deleted for run in runs), Tally())
    parts.append(f"{_tally(found_orphans)} deletable")
    if deleted.files:
        parts.append(f"{_tally(deleted)} deleted")
    console.print(screen.text(", ".join(parts), "bold"))


def _heading(console: Console, run: CleanupRun) -> None:
    console.print(Text.assemble(screen.text(run.table.label, "bold cyan"), f"  {run.table.format.value}"))
    if run.location is not None:
        console.print(screen.text(run.location))
    if run.engine is not None:
        console.print(screen.text(f"engine {run.engine.kind}: {run.engine.why}", "dim"))


def _expiry(console: Console, expiry: ExpiryPlan) -> None:
    going, staying = screen.counted(len(expiry.expire), "snapshot"), len(expiry.keep)
    console.print(screen.text(f"{going} to expire, {staying} to keep"))
    if expiry.skipped is not None:
        console.print(screen.text(f"  expiry is skipped: {expiry.skipped}", "yellow"))
    shown = screen.table(console, "snapshot", "", "why", paths=("snapshot", "why"))
    for snapshot in expiry.expire[:LINES_SHOWN]:
        committed = f"committed {screen.moment(snapshot.committed_at)}"
        shown.add_row(screen.text(snapshot.id), screen.text("expire", "yellow"), screen.text(committed))
    for kept in expiry.keep[:LINES_SHOWN]:
        shown.add_row(screen.text(kept.id), screen.text("keep", "green"), screen.text(kept.why))
    if shown.row_count:
        screen.block(console, shown)
    _and_more(console, len(expiry.expire) + len(expiry.keep) - shown.row_count, "snapshot")
    for what, names in (("refs", expiry.drop_refs), ("partitions", expiry.partitions)):
        if names:
            console.print(screen.text(f"  {what} past their age: {', '.join(names[:LINES_SHOWN])}"))
            _and_more(console, len(names) - LINES_SHOWN, "more")


def _verdicts(console: Console, plan: OrphanPlan) -> None:
    shown = screen.table(console, "verdict", "files", "size", "meaning", numbers=("files", "size"))
    for verdict in Verdict:
        tally = plan.verdicts.get(verdict, Tally())
        style = "yellow" if verdict is Verdict.ORPHAN and tally.files else ""
        shown.add_row(
            verdict.value, screen.count(tally.files), screen.size(tally.bytes), _MEANING[verdict], style=style
        )
    screen.block(console, shown)
    if plan.unconfirmed.files:
        waiting = f"  {_tally(plan.unconfirmed)} of the young wait only for confirm_after_hours"
        console.print(screen.text(waiting, "dim"))


def _kinds(console: Console, plan: OrphanPlan) -> None:
    if not plan.candidates.files:
        console.print(screen.text("nothing to delete", "green"))
        return
    shown = screen.table(console, "orphans", "files", "size", numbers=("files", "size"))
    for kind, tally in sorted(plan.by_kind.items()):
        shown.add_row(screen.text(kind), screen.count(tally.files), screen.size(tally.bytes))
    screen.block(console, shown)
    for reason, tally in sorted(plan.by_reason.items()):
        console.print(screen.text(f"  {_tally(tally)} {_REASONS[reason]}", "dim"))


def _files(console: Console, plan: OrphanPlan, first: Sequence[Candidate]) -> None:
    if not first:
        return
    shown = screen.table(
        console, "size", "modified", "kind", "reason", "orphan file", numbers=("size",), paths=("orphan file",)
    )
    for row in first:
        changed = screen.moment(row.modified_at)
        shown.add_row(
            screen.size(row.size_bytes), changed, screen.text(row.kind), row.reason.value, screen.text(row.path)
        )
    screen.block(console, shown)
    _and_more(console, plan.candidates.files - len(first), "file")


def _missing(console: Console, plan: OrphanPlan) -> None:
    if not plan.missing_count:
        return
    console.print(screen.text(f"{screen.counted(plan.missing_count, 'live file')} missing from storage:", "bold red"))
    for path in plan.missing[:LINES_SHOWN]:
        console.print(screen.text(f"  {path}", "red"), soft_wrap=True)
    _and_more(console, plan.missing_count - min(len(plan.missing), LINES_SHOWN), "file")


def _would(console: Console, run: CleanupRun, *, execute: bool) -> None:
    if run.plan is None:
        return
    expiring = screen.counted(len(run.expiry.expire) if run.expiry else 0, "snapshot")
    console.print(screen.text(f"  would expire {expiring} and delete {_tally(run.plan.candidates)}"))
    hint = (
        "  the tenant's, dataset's or table's own dry_run = true stands over --execute"
        if execute
        else "  run it again with --execute to do it"
    )
    console.print(screen.text(hint, "yellow" if execute else "dim"))


def _did(console: Console, run: CleanupRun) -> None:
    report = run.deletion
    if run.expired_snapshots or run.expired_partitions:
        partitions = f", {screen.counted(len(run.expired_partitions), 'partition')}" if run.expired_partitions else ""
        console.print(screen.text(f"  expired {screen.counted(len(run.expired_snapshots), 'snapshot')}{partitions}"))
    kinds = ", ".join(f"{kind} {screen.count(tally.files)}" for kind, tally in sorted(report.by_kind.items()))
    console.print(screen.text(f"  deleted {_tally(report.deleted)}{f': {kinds}' if kinds else ''}"))
    if report.already_gone:
        console.print(screen.text(f"  {screen.counted(report.already_gone, 'file')} had gone already"))
    if run.spared:
        spared = f"  {screen.counted(run.spared, 'file')} spared: referenced again since the plan was made"
        console.print(screen.text(spared, "yellow"))
    if report.failed:
        console.print(screen.text(f"  {screen.counted(len(report.failed), 'file')} could not be deleted:", "bold red"))
        for failed in report.failed[:LINES_SHOWN]:
            console.print(screen.text(f"    {failed.path}: {failed.why}", "red"), soft_wrap=True)
        _and_more(console, len(report.failed) - LINES_SHOWN, "file")


def _trouble(console: Console, run: CleanupRun) -> None:
    """The refusal or failure, last, so that it is what a person sees first."""
    if run.refusal is None and run.outcome is not Outcome.FAILED:
        return
    title = "FAILED" if run.outcome is Outcome.FAILED else "REFUSED"
    lines = [run.reason or "no reason was given"]
    if run.refusal is not None:
        title = f"{title}: {run.refusal.code}"
        lines = [run.refusal.reason, *([advice] if (advice := remedy(run.refusal.code)) else [])]
    if console.is_terminal:
        body = Text("\n\n").join(screen.text(line) for line in lines)
        console.print(Panel(body, title=Text(title), border_style="red", title_align="left"))
        return
    console.print(screen.text(title))
    for line in lines:
        console.print(screen.text(f"  {line}"))


def _and_more(console: Console, number: int, noun: str) -> None:
    if number > 0:
        what = f"{number:,} more" if noun == "more" else f"{screen.counted(number, f'more {noun}')}"
        console.print(screen.text(f"  … and {what}", "dim"))


def _tally(tally: Tally) -> str:
    return f"{screen.counted(tally.files, 'file')} ({screen.size(tally.bytes)})"
