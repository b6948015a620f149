"""The commands of `lakesweep` inside a Spark job or a notebook: they use the session that is there."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from lakesweep.cli import interrupts
from lakesweep.cli import main as commands

_KIND = "LAKESWEEP_ENGINE__KIND"
_LOOK_SECONDS = 1.0
"""Python notices Ctrl-C only when a wait ends if it came just before that began."""


def main(arguments: Sequence[str]) -> int:
    """Run a command with the session of this process, started as its platform does it. Returns the exit code.

    Tables are planned on Spark unless the environment names another engine: a job is submitted for its cluster.
    A notebook has a running event loop, so there the command runs in a thread. The notebook's stop button stops the
    command, waits for its end and raises KeyboardInterrupt.
    """
    from lakesweep.engines.spark.driver import adopt  # noqa: PLC0415 - heavy
    from lakesweep.settings.load import fixed  # noqa: PLC0415 - heavy

    engine: dict[str, object] = {"spark": {"master": adopt(), "remote": None}}
    if not any(name.upper() == _KIND for name in os.environ):
        engine["kind"] = "spark"
    with fixed({"engine": engine}):
        return _in_thread(arguments) if _loop_runs() else commands.main(arguments)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread(arguments: Sequence[str]) -> int:
    with interrupts.from_caller() as interrupt, ThreadPoolExecutor(1, thread_name_prefix="lakesweep") as thread:
        thread.submit(int).result()  # it runs now: one that is interrupted while it starts would not be waited for
        try:
            running = thread.submit(contextvars.copy_context().run, commands.main, arguments)
            while wait([running], timeout=_LOOK_SECONDS).not_done:
                pass
            return running.result()
        except KeyboardInterrupt:
            interrupt()  # leaving the block waits for the end
            raise
