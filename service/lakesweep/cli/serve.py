"""`lakesweep serve`: the service that cleans all configured tables on their schedules, until it is stopped."""

from __future__ import annotations

import sys

from lakesweep.cli import screen, session


@session.command(is_service=True)
async def serve(
    opened: session.Session,
) -> None:
    """Clean all configured tables on their schedules.

    Works on tables whose orphan_cleanup.enabled is true. SIGTERM stops it gracefully, SIGHUP or a changed file makes it
    read its settings again.

    Exit codes: 0 stopped gracefully, 2 bad usage or settings, 4 a part of the service failed.
    """
    from lakesweep.daemon.service import Service  # noqa: PLC0415 - heavy
    from lakesweep.settings.load import load, settings_file  # noqa: PLC0415 - heavy

    def announce(address: str) -> None:
        if sys.stderr.isatty():  # elsewhere it is in the log, which programs read line by line
            screen.complain(f"the dashboard is at {address}")

    service = Service(
        opened.app, file=settings_file(opened.config), load=lambda: load(opened.config), announce=announce
    )
    await service.run()
