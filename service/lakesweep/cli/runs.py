"""`lakesweep runs`: the runs there were, newest first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import documents, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def runs(
    table: Annotated[
        str | None, typer.Option("--table", metavar="TENANT/DATASET/TABLE", help="Only this table.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number to return.")] = 20,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """List past runs, newest first.

    Shows what each one deleted, or why it did not.

    Exit codes: 0 listed, 2 bad usage or settings, 4 the state store cannot be read.
    """

    async def body(opened: Session) -> ExitCode:
        found = await opened.app.state.list_runs(table=table, limit=limit)
        if as_json:
            with documents.array("runs", sys.stdout) as written:
                for one in found:
                    written.add(one)
        else:
            lists.show_runs(screen.output(), found, table)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))
