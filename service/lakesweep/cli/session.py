"""Open what a command needs, run it, and turn whatever happens into one sentence and an exit code.

Everything heavy is imported here and only when a command really runs, so that `--help` answers at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakesweep import aio
from lakesweep.cli import exit_codes, screen, startup
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import LakesweepError

if TYPE_CHECKING:
    from lakesweep.daemon.app import App
    from lakesweep.settings.schema import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a command works with."""

    settings: Settings
    app: App


def run(
    body: Callable[[Session], Awaitable[ExitCode]], *, config: Path | None, debug: bool, tells_by_log: bool = False
) -> ExitCode:
    """Run one command. Never raises: the answer is the process's exit code."""
    return guarded(lambda: _run(body, config, debug=debug, tells_by_log=tells_by_log), debug=debug)


def guarded(work: Callable[[], ExitCode], *, debug: bool) -> ExitCode:
    """The same for work that needs nothing opened."""
    try:
        code = work()
        sys.stdout.flush()  # a reader that went away is told here, and not at the very end
    except KeyboardInterrupt:
        screen.complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at its end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.CLOSED_PIPE
    except Exception as exc:  # noqa: BLE001 - the outermost boundary: nothing may reach a user as a traceback
        error = _first(exc)
        if debug:
            traceback.print_exception(error)
        screen.complain(exit_codes.sentence(error))
        return exit_codes.of_error(error)
    return code


def _run(
    body: Callable[[Session], Awaitable[ExitCode]], config: Path | None, *, debug: bool, tells_by_log: bool
) -> ExitCode:
    # pydantic, pyarrow, botocore and their like take longer to import than `--help` takes to print.
    from lakesweep.settings.load import load  # noqa: PLC0415 - heavy
    from lakesweep.telemetry import logs  # noqa: PLC0415 - heavy

    settings = load(config)
    log_settings = settings.logging.model_copy(update={"level": "debug"}) if debug else settings.logging
    # On a terminal most commands tell themselves what happens.
    quiet = sys.stderr.isatty() and not (debug or tells_by_log)
    logs.configure(log_settings, at_least=logging.WARNING if quiet else logging.DEBUG)

    startup.import_arrow()
    from lakesweep.daemon.app import App  # noqa: PLC0415 - heavy

    async def opened() -> ExitCode:
        async with App.open(settings) as app:
            startup.finish()
            return await body(Session(settings=settings, app=app))

    return asyncio.run(opened())


def _first(error: BaseException) -> BaseException:
    """Tasks fail in groups; one of our own errors says it best."""
    found = list(aio.leaves(error))
    return next((leaf for leaf in found if isinstance(leaf, LakesweepError)), found[0])
