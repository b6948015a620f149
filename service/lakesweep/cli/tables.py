"""`lakesweep tables`: what the settings and the catalogs give, and how each table's last run ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from lakesweep.cli import documents, exit_codes, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.table_status import TableStatus


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
                    written.add(status.document)
        else:
            lists.show_tables(screen.output(), found)
        _tell_empty(opened, found)
        return exit_codes.gravest(ExitCode.FAILED for status in found if status.problem)

    raise typer.Exit(session.run(body, config=config, debug=debug))


def _tell_empty(opened: Session, found: Sequence[TableStatus]) -> None:
    """A dataset without tables may be new, or a slip in its address: silence would hide the second."""
    seen = {(status.ref.tenant, status.ref.dataset) for status in found}
    for tenant, dataset in opened.app.discovery.datasets():
        if (tenant.id, dataset.id) not in seen:
            place = dataset.location or dataset.warehouse or "its catalog"
            screen.complain(f"{tenant.id}/{dataset.id}: no tables found in {place}")
