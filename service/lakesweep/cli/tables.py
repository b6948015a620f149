"""`lakesweep tables`: what the settings and the catalogs give, and how each table's last run ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import documents, exit_codes, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model import run_document
from lakesweep.model.run import Outcome

if TYPE_CHECKING:
    from lakesweep.daemon.table_status import TableStatus


class TableSort(StrEnum):
    """What comes first among tables."""

    TABLE = "table"
    DELETABLE = "deletable"
    LAST_RUN = "last-run"


_KEYS: dict[TableSort, Callable[[TableStatus], int | str]] = {
    TableSort.TABLE: lambda status: status.ref.label,
    TableSort.DELETABLE: lambda status: -(run_document.deletable_bytes(status.last_run) if status.last_run else -1),
    TableSort.LAST_RUN: lambda status: status.last_run["started_at"] if status.last_run else "",
}


@session.command()
async def tables(
    opened: session.Session,
    targets: options.Scopes = None,
    *,
    outcome: Annotated[
        Outcome | None,
        typer.Option("--outcome", help="Only tables whose last run has this outcome.", show_default=False),
    ] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only tables whose last run was refused, or that cannot be read.")
    ] = False,
    sort: Annotated[TableSort | None, typer.Option("--sort", help="Order of the tables.", show_default=False)] = None,
    as_json: options.Json = False,
) -> ExitCode:
    """List the configured tables and their last runs.

    Tables are discovered from the configured catalogs and warehouses each time.

    Exit codes: 0 listed, 2 bad usage or settings, 4 some catalog or table could not be read.
    """
    looked = await _statuses(opened, targets or [None])
    found = [status for status in looked if _wanted(status, outcome, refused=refused)]
    if sort:
        found.sort(key=_KEYS[sort])
    if as_json:
        documents.write_array("tables", (status.document for status in found))
    else:
        lists.show_tables(screen.output(), found)
    if not targets:
        _report_empty(opened, looked)
    return exit_codes.gravest(ExitCode.FAILED for status in found if status.problem)


async def _statuses(opened: session.Session, names: Sequence[str | None]) -> list[TableStatus]:
    """Each table once, however many targets name it."""
    found = {status.ref: status for name in names for status in await opened.app.tables(name)}
    return list(found.values())


def _wanted(status: TableStatus, outcome: Outcome | None, *, refused: bool) -> bool:
    last = status.last_run
    in_the_way = status.problem is not None or bool(last and last["refused"])
    return outcome in (None, last["outcome"] if last else None) and (in_the_way or not refused)


def _report_empty(opened: session.Session, found: Sequence[TableStatus]) -> None:
    """A dataset without tables may be new, or a slip in its address: silence would hide the second."""
    seen = {(status.ref.tenant, status.ref.dataset) for status in found}
    for tenant, dataset in opened.app.discovery.datasets():
        if (tenant.id, dataset.id) not in seen:
            place = dataset.location or dataset.warehouse or "its catalog"
            screen.complain(f"{tenant.id}/{dataset.id}: no tables found in {place}")
