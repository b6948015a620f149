"""One table's plan or run, for people: what stays and why, what goes, what is wrong and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from lakesweep.cli import screen
from lakesweep.model.files import Candidate, OrphanPlan, Reason, Tally, Verdict, Went
from lakesweep.model.refusal import remedy
from lakesweep.model.requests import KINDS
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FACTS

LINES_SHOWN = 20
"""Lines of one list; the count is always shown. `--json` has all of them."""

_MEANING = {
    Verdict.LIVE: "referenced by what stays",
    Verdict.YOUNG: "unreferenced, inside the grace period",
    Verdict.RESERVED: "kept by the format's own rules",
    Verdict.FOREIGN: "not a name that the format writes: never deleted",
    Verdict.ORPHAN: "may be deleted",
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
        _expiry(console, run.expiry, _noun(run))
    if run.plan is not None:
        _verdicts(console, run.plan, run.stream)
        _listing(console, run, run.plan)
        _going(console, run.plan, run.expiry or ExpiryPlan(head=run.plan.head), _noun(run))
        _files(console, run.plan, first)
        _show_staying(console, run)
        _missing(console, run.plan)
        _unverified(console, run.plan)
    _shared_files(console, run)
    _show_expenses(console, run)
    _show_warnings(console, run)
    show_trouble(console, run)


def show_run(console: Console, run: CleanupRun, *, execute: bool) -> None:
    _heading(console, run)
    if run.plan is not None:
        _verdicts(console, run.plan, run.stream)
        _listing(console, run, run.plan)
    outcome, style = _OUTCOMES[run.outcome] if run.outcome else ("not finished", "bold red")
    screen.line(console, outcome, style)
    if run.outcome is Outcome.DRY_RUN:
        _would(console, run, execute=execute)
    else:
        _did(console, run)
    if run.plan is not None:
        _missing(console, run.plan)
        _unverified(console, run.plan)
    _shared_files(console, run)
    _show_warnings(console, run)
    show_trouble(console, run)


def _heading(console: Console, run: CleanupRun) -> None:
    console.print(Text.assemble(screen.text(run.table.label, "bold cyan"), f"  {run.table.format.value}"))
    if run.location is not None:
        screen.line(console, run.location)
    if run.engine is not None:
        screen.line(console, f"engine {run.engine.kind}: {run.engine.why}", "dim")


def _noun(run: CleanupRun) -> str:
    """What the format's own people call a retained state."""
    return FACTS[run.table.format].noun


def _expiry(console: Console, expiry: ExpiryPlan, noun: str) -> None:
    going, staying = screen.counted(len(expiry.expire), noun), len(expiry.keep)
    screen.line(console, f"{going} to expire, {staying} to keep")
    if expiry.skipped is not None:
        screen.line(console, f"  expiry is skipped: {expiry.skipped}", "yellow")
    shown = screen.table(console, noun, "", "why", paths=(noun, "why"))
    for snapshot in expiry.expire[:LINES_SHOWN]:
        why = f"committed {screen.moment(snapshot.committed_at)}"
        if snapshot.pins:
            why = f"{why}; {', '.join(snapshot.pins)} stays"
        shown.add_row(screen.text(snapshot.id), screen.text("expire", "yellow"), screen.text(why))
    for kept in expiry.keep[:LINES_SHOWN]:
        shown.add_row(screen.text(kept.id), screen.text("keep", "green"), screen.text(kept.why))
    if shown.row_count:
        screen.block(console, shown)
    screen.and_more(console, len(expiry.expire) + len(expiry.keep) - shown.row_count, noun)
    for what, names in (("refs", expiry.drop_refs), ("partitions", expiry.partitions)):
        if names:
            screen.line(console, f"  {what} past their retention: {', '.join(names[:LINES_SHOWN])}")
            screen.and_more(console, len(names) - LINES_SHOWN)


def _verdicts(console: Console, plan: OrphanPlan, stream: str | None) -> None:
    shown = screen.table(console, "verdict", "files", "size", "meaning", numbers=("files", "size"))
    for verdict in Verdict:
        if verdict is not Verdict.ORPHAN and not plan.listed:
            continue  # nobody looked for files that stay
        tally = plan.verdicts.get(verdict, Tally())
        if not (plan.listed or tally.files or verdict is Verdict.ORPHAN):
            continue  # without a listing none of these was looked at: a zero would say that there are none
        style = "yellow" if verdict is Verdict.ORPHAN and tally.files else ""
        shown.add_row(
            verdict.value, screen.count(tally.files), screen.size(tally.bytes), _MEANING[verdict], style=style
        )
    screen.block(console, shown)
    if plan.unconfirmed.files:
        screen.line(
            console, f"  {amount(plan.unconfirmed)} of the young files wait only for confirm_after_hours", "dim"
        )
    if stream is not None:
        screen.line(console, f"  {stream}", "dim")


def _listing(console: Console, run: CleanupRun, plan: OrphanPlan) -> None:
    """Shown where somebody may expect more than was looked for, or less."""
    if run.listed_because is not None:
        screen.long_line(console, f"  listed anyway: {run.listed_because}", "yellow")
    if not plan.listed:
        last = f"the last one was {screen.moment(run.last_listed_at)}" if run.last_listed_at else "there was none yet"
        text = f"  not listed: unreferenced and missing files wait for the next listing, {last}"
        screen.long_line(console, text, "dim")


def _going(console: Console, plan: OrphanPlan, expiry: ExpiryPlan, noun: str) -> None:
    """Expired snapshots, expired partitions and orphans apart: they are cleaned for different reasons."""
    lines = []
    if expiry.expire:
        what = f"expired {noun}{'' if len(expiry.expire) == 1 else 's'}"
        lines.append((what, plan.by_reason.get(Reason.EXPIRED, Tally()), "only they refer to these files"))
    if expiry.partitions:
        what = f"expired partition{'' if len(expiry.partitions) == 1 else 's'}"
        lines.append((what, expiry.partition_files, "dropped now, deleted in a later run"))
    orphans = plan.by_reason.get(Reason.UNREFERENCED, Tally())
    if orphans.files:
        lines.append(("unreferenced", orphans, "older than the grace period"))
    shown = screen.table(console, "what goes", "files", "size", "why", numbers=("files", "size"))
    for what, tally, why in lines:
        shown.add_row(what, screen.count(tally.files), screen.size(tally.bytes), why)
    if lines:
        screen.block(console, shown)
    if plan.candidates.files:
        screen.line(console, f"  {amount(plan.candidates)}: {_by_kind(plan.by_kind)}", "dim")
    else:
        screen.line(console, "nothing to delete", "green")


def _files(console: Console, plan: OrphanPlan, first: Sequence[Candidate]) -> None:
    """On a terminal a path has lines of its own: it can be long, and somebody may want to copy it."""
    if not first:
        return
    shown = screen.table(console, "size", "modified", "kind", "reason", "file to delete", numbers=("size",))
    console.print()
    for row in first:
        details = (screen.size(row.size_bytes), screen.moment(row.modified_at), row.kind, row.reason.value)
        if console.is_terminal:
            screen.long_line(console, f"  {row.path}")
            screen.line(console, f"    {', '.join(details)}", "dim")
        else:
            shown.add_row(*map(screen.text, (*details, row.path)))
    if shown.row_count:
        console.print(shown)
    screen.and_more(console, plan.candidates.files - len(first), "file")


def _missing(console: Console, plan: OrphanPlan) -> None:
    if not plan.missing_count:
        return
    screen.line(console, f"{screen.counted(plan.missing_count, 'live file')} missing from storage:", "bold red")
    for path in plan.missing[:LINES_SHOWN]:
        screen.long_line(console, f"  {path}", "red")
    screen.and_more(console, plan.missing_count - min(len(plan.missing), LINES_SHOWN), "file")


def _unverified(console: Console, plan: OrphanPlan) -> None:
    if not plan.unverified:
        return
    are, were = ("is", "was") if plan.unverified == 1 else ("are", "were")
    text = f"{screen.counted(plan.unverified, 'live file')} {are} outside the listed places and {were} not checked"
    screen.long_line(console, f"{text}, first {plan.unverified_first}", "yellow")


def _shared_files(console: Console, run: CleanupRun) -> None:
    for one in run.shared_files[:LINES_SHOWN]:
        text = f"{one.table} uses {screen.counted(one.files, 'file')} of this table, kept for it, first {one.first}"
        screen.long_line(console, text, "yellow")
    screen.and_more(console, len(run.shared_files) - LINES_SHOWN, "table")


def _would(console: Console, run: CleanupRun, *, execute: bool) -> None:
    if run.plan is None:
        return
    expiring = _expired(run, run.expiry.expire if run.expiry else (), run.expiry.partitions if run.expiry else ())
    screen.line(console, f"  would expire {expiring} and delete {amount(run.plan.candidates)}")
    hint = (
        "  the tenant's, dataset's or table's own dry_run = true overrides --execute"
        if execute
        else "  run it again with --execute to do it"
    )
    screen.line(console, hint, "yellow" if execute else "dim")


def _did(console: Console, run: CleanupRun) -> None:
    report = run.deletion
    if run.unchanged:
        screen.line(console, "  unchanged: no commit since the last run, and nothing became old enough")
        return
    if run.expired_snapshots or run.expired_partitions:
        screen.line(console, f"  expired {_expired(run, run.expired_snapshots, run.expired_partitions)}")
    kinds = f": {_by_kind(report.by_kind)}" if report.by_kind else ""
    screen.line(console, f"  deleted {amount(report.deleted)}{kinds}")
    for where in (Went.TRASH, Went.VERSIONS):
        if size := report.retained_bytes(where):
            screen.line(console, f"  of these {_stays(run, where, size)}", "yellow")
    if report.already_gone:
        screen.line(console, f"  {screen.counted(report.already_gone, 'file')} already gone")
    if run.spared:
        spared = f"  {screen.counted(run.spared, 'file')} spared: referenced or written again since the plan was made"
        screen.line(console, spared, "yellow")
    if report.failed:
        screen.line(console, f"  {screen.counted(len(report.failed), 'file')} could not be deleted:", "bold red")
        for failed in report.failed[:LINES_SHOWN]:
            screen.long_line(console, f"    {failed.path}: {failed.why}", "red")
        screen.and_more(console, len(report.failed) - LINES_SHOWN, "file")


def show_trouble(console: Console, run: CleanupRun) -> None:
    """The refusal or failure, last, so that it is what a person sees first."""
    if run.refusal is None and run.outcome is not Outcome.FAILED:
        return
    title = "FAILED" if run.outcome is Outcome.FAILED else "REFUSED"
    lines = [run.reason or "no reason was given"]
    if run.refusal is not None:
        title = f"{title}: {run.refusal.code}"
        lines = [run.refusal.reason, *([advice] if (advice := remedy(run.refusal.code, run.id)) else [])]
    if console.is_terminal:
        body = Text("\n\n").join(screen.text(line) for line in lines)
        console.print(Panel(body, title=Text(title), border_style="red", title_align="left"))
        return
    screen.line(console, title)
    for line in lines:
        screen.line(console, f"  {line}")


def amount(found: Tally) -> str:
    return f"{screen.counted(found.files, 'file')} ({screen.size(found.bytes)})"


def _expired(run: CleanupRun, snapshots: Sequence[object], partitions: Sequence[str]) -> str:
    found = screen.counted(len(snapshots), _noun(run))
    return f"{found}, {screen.counted(len(partitions), 'partition')}" if partitions else found


def _by_kind(kinds: Mapping[str, Tally]) -> str:
    return ", ".join(f"{kind} {screen.count(tally.files)}" for kind, tally in sorted(kinds.items()))


def _show_staying(console: Console, run: CleanupRun) -> None:
    """A delete that frees nothing, or not yet, is reported before somebody relies on the space."""
    if run.plan is None or not run.plan.candidates.bytes or run.will_stay is Went.FREED:
        return
    screen.line(console, f"  {_stays(run, run.will_stay, run.plan.candidates.bytes)}", "yellow")


def _stays(run: CleanupRun, where: Went, size: int) -> str:
    if where is Went.TRASH:
        return f"{screen.size(size)} stay in the trash until it is emptied"
    days = run.store.noncurrent_days if run.store else None
    until = f"for {screen.counted(days, 'more day')}, by a lifecycle rule" if days else "until somebody removes them"
    return f"{screen.size(size)} stay as versions, which the bucket keeps {until}"


def _show_warnings(console: Console, run: CleanupRun) -> None:
    """What a person should do about it, though it stops nothing."""
    if run.store and run.store.warning:
        screen.long_line(console, f"warning: {run.store.warning}", "yellow")


def _show_expenses(console: Console, run: CleanupRun) -> None:
    if run.planned is None:
        return
    requests = run.planned.requests
    sent = {kind: getattr(requests, kind) for kind in KINDS}
    parts = ", ".join(f"{screen.count(number)} {kind.upper()}" for kind, number in sent.items() if number)
    if parts:
        price = f", {run.planned.cost:.6f} {run.planned.currency}" if run.planned.cost else ""
        text = f"a cycle that does this takes about {parts}, reads {screen.size(requests.bytes_read)}{price}"
        screen.long_line(console, text, "dim")
