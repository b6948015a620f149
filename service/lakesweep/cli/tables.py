"""`lakesweep tables`: what the settings and the catalogs give, and how each table's last run ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from lakesweep.cli import documents, exits, lists, options, screen, session
from lakesweep.cli.exits import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def tables(as_json: options.Json = False, config: options.Config = None, debug: options.Debug = False) -> None:
    """List the configured tables and their last runs.

    Tables are discovered from the configured catalogs and warehouses, anew each time.

    Exit codes: 0 listed, 2 bad usage or settings, 4 some catalog or table could not be read.
    """

    async def body(opened: Session) -> ExitCode:
        found = await opened.app.tables()
        if as_json:
            with documents.array("tables", sys.stdout) as written:
                for status in found:
                    written.add(
                        {
                            "table": status.ref.label,
                            "format": status.ref.format.value,
                            "location": status.location,
                            "problem": status.problem,
                            "last_run": status.last_run,
                        }
                    )
        else:
            lists.show_tables(screen.output(), found)
        return exits.gravest(ExitCode.FAILED for status in found if status.problem)

    raise typer.Exit(session.run(body, config=config, debug=debug))
