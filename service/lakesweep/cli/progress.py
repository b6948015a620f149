"""A moving line on a terminal's standard error while a table is worked on, and silence anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lakesweep.cli import screen

if TYPE_CHECKING:
    from lakesweep.ports.run import Progress as Step
    from lakesweep.ports.run import ReportProgress


@contextmanager
def watching(label: str) -> Iterator[ReportProgress | None]:
    """Yields what a cycle reports its steps to, or None when nobody is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    shown = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False)
    with shown as bar:
        task = bar.add_task(screen.printable(label), total=None)

        def report(step: Step) -> None:
            bar.update(
                task,
                description=screen.printable(f"{label}: {step.phase}"),
                completed=step.done,
                total=step.total,
            )

        yield report
