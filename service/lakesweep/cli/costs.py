"""What a plan or a run costs and really frees, for people."""

from __future__ import annotations

from rich.console import Console

from lakesweep.cli import screen
from lakesweep.model.files import Went
from lakesweep.model.requests import KINDS
from lakesweep.model.run import CleanupRun


def show_staying(console: Console, run: CleanupRun) -> None:
    """A delete that frees nothing, or not yet, is reported before somebody relies on the space."""
    if run.plan is None or not run.plan.candidates.bytes or run.will_stay is Went.FREED:
        return
    screen.line(console, f"  {stays(run, run.will_stay, run.plan.candidates.bytes)}", "yellow")


def stays(run: CleanupRun, where: Went, size: int) -> str:
    if where is Went.TRASH:
        return f"{screen.size(size)} stay in the trash until it is emptied"
    days = run.store.noncurrent_days if run.store else None
    until = f"for {screen.counted(days, 'more day')}, by a lifecycle rule" if days else "until somebody removes them"
    return f"{screen.size(size)} stay as versions, which the bucket keeps {until}"


def show_warnings(console: Console, run: CleanupRun) -> None:
    """What a person should do about it, though it stops nothing."""
    if run.store and run.store.warning:
        screen.long_line(console, f"warning: {run.store.warning}", "yellow")


def show_expenses(console: Console, run: CleanupRun) -> None:
    if run.planned is None:
        return
    requests = run.planned.requests
    sent = {kind: getattr(requests, kind) for kind in KINDS}
    parts = ", ".join(f"{screen.count(number)} {kind.upper()}" for kind, number in sent.items() if number)
    if parts:
        price = f", {run.planned.cost:.6f} {run.planned.currency}" if run.planned.cost else ""
        text = f"a cycle that does this takes about {parts}, reads {screen.size(requests.bytes_read)}{price}"
        screen.long_line(console, text, "dim")
