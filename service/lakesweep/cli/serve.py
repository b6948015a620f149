"""`lakesweep serve`: the service that cleans all configured tables on their schedules, until it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from lakesweep.cli import options, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def serve(config: options.Config = None, debug: options.Debug = False) -> None:
    """Clean all configured tables on their schedules.

    Works on tables whose orphan_cleanup.enabled is true. SIGTERM ends it in order, SIGHUP or a changed file makes it
    read its settings again.

    Exit codes: 0 stopped in order, 2 bad usage or settings, 4 a part of the service failed.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon.service import Service  # noqa: PLC0415 - heavy
        from lakesweep.settings.load import load, settings_file  # noqa: PLC0415 - heavy

        service = Service(opened.app, file=settings_file(config), load=lambda: load(config))
        await service.run()
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug, tells_by_log=True))
