"""`lakesweep serve`: the service that cleans all configured tables on their schedules, until it is stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from lakesweep.cli import options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def serve(config: options.Config = None, debug: options.Debug = False) -> None:
    """Clean all configured tables on their schedules.

    Works on tables whose orphan_cleanup.enabled is true. SIGTERM stops it gracefully, SIGHUP or a changed file makes it
    read its settings again.

    Exit codes: 0 stopped gracefully, 2 bad usage or settings, 4 a part of the service failed.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon.service import Service  # noqa: PLC0415 - heavy
        from lakesweep.settings.load import load, settings_file  # noqa: PLC0415 - heavy

        def announce(address: str) -> None:
            if sys.stderr.isatty():  # elsewhere it is in the log, which programs read line by line
                screen.complain(f"the dashboard is at {address}")

        service = Service(opened.app, file=settings_file(config), load=lambda: load(config), announce=announce)
        await service.run()
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug, is_service=True))
