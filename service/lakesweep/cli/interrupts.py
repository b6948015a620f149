"""Ctrl-C while tables are worked on: the run ends after its running batches and is closed with what it did.

The first Ctrl-C requests a stop, so that its record says what was deleted; a second one ends the process at once,
as Ctrl-C does anywhere else, and the table's next run closes the record.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakesweep.aio import StopRequest
from lakesweep.cli import screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakesweep.model.run import CleanupRun

WHY = "interrupted by Ctrl-C; the next run continues"


@contextmanager
def stop_on_interrupt(stop: StopRequest, why: str = WHY) -> Iterator[None]:
    """While the block runs, Ctrl-C requests a stop, with this reason. Outside the main thread signals are not
    handled here."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()

    def request_stop() -> None:
        signal.signal(signal.SIGINT, before)  # the second one ends the process, as usual
        screen.complain("ending after the requests under way; Ctrl-C again ends at once")
        stop.end(why)

    loop.add_signal_handler(signal.SIGINT, request_stop)
    try:
        yield
    finally:
        if not stop.is_set():
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


def report_interrupted(runs: Sequence[CleanupRun], *, execute: bool) -> None:
    """What was done until then, and how to continue."""
    deleted = sum(run.deletion.deleted.files for run in runs)
    freed = sum(run.deletion.deleted.bytes for run in runs)
    expired = sum(len(run.expired_snapshots) for run in runs)
    if not execute:
        screen.complain("interrupted: nothing was changed")
        return
    did = f"{screen.counted(deleted, 'file')} deleted ({screen.size(freed)})"
    did = f"{did}, {screen.counted(expired, 'snapshot')} expired" if expired else did
    last = f"; `lakesweep runs --table '{runs[-1].table.label}'` shows the last one" if runs else ""
    screen.complain(f"interrupted: {did}; nothing else was changed. The same command continues from here{last}")
