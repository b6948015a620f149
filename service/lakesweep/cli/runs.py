"""`lakesweep runs`: the runs there were, newest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import documents, lists, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model import run_document
from lakesweep.model.run import Outcome

if TYPE_CHECKING:
    from lakesweep.ports.state import StateStore


class RunSort(StrEnum):
    """What comes first among runs."""

    STARTED = "started"
    TABLE = "table"
    DELETED = "deleted"
    DELETABLE = "deletable"


_KEYS: dict[RunSort, Callable[[run_document.Run], int | str]] = {
    RunSort.STARTED: lambda _: 0,  # as they come
    RunSort.TABLE: lambda run: run["table"],
    RunSort.DELETED: lambda run: -run["deleted"]["bytes"],
    RunSort.DELETABLE: lambda run: -run["orphans"]["bytes"],
}
_RUNS_AT_ONCE = 200


@session.command()
async def runs(
    opened: session.Session,
    targets: options.Scopes = None,
    *,
    table: options.OnlyTable = None,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Only runs with this outcome.", show_default=False)
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only runs that were refused.")] = False,
    sort: Annotated[RunSort, typer.Option("--sort", help="Order of what is listed.")] = RunSort.STARTED,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number to return.")] = 20,
    as_json: options.Json = False,
) -> ExitCode:
    """List past runs, newest first.

    Shows what each one deleted, or why it did not. Every command that takes a run also takes the beginning of its id.

    Exit codes: 0 listed, 2 bad usage or settings, 4 the state store cannot be read.
    """
    from lakesweep.daemon.targets import covers  # noqa: PLC0415 - heavy

    def wanted(run: run_document.Run) -> bool:
        return (
            (not targets or any(covers(target, run["table"]) for target in targets))
            and outcome in (None, run["outcome"])
            and (not refused or run["refused"] is not None)
        )

    found = sorted(await _matching(opened.app.state, wanted, table, limit), key=_KEYS[sort])
    if as_json:
        documents.write_array("runs", found)
    else:
        requested = [table] if table else targets or []
        lists.show_runs(screen.output(), found, ", ".join(requested))
        if requested and not found and (hint := await _suggested(opened, requested)):
            screen.say(hint)
    return ExitCode.DONE


async def _suggested(opened: session.Session, requested: Sequence[str]) -> str:
    """Names near those that nothing is known of: of tenants, datasets, and tables that had runs."""
    from lakesweep.daemon.targets import covers, suggestion  # noqa: PLC0415 - heavy

    recent = await opened.app.state.list_runs(limit=_RUNS_AT_ONCE)
    known = [run["table"] for run in recent]
    for tenant in opened.settings.tenants:
        known += [tenant.id, *(f"{tenant.id}/{dataset.id}" for dataset in tenant.datasets)]
    unknown = [name for name in requested if not any(covers(name, one) for one in known)]
    return " ".join(filter(None, (suggestion(name, known) for name in unknown)))


async def _matching(
    state: StateStore, wanted: Callable[[run_document.Run], bool], table: str | None, limit: int
) -> list[run_document.Run]:
    """The newest that are wanted, however many others lie between them."""
    found: list[run_document.Run] = []
    before: str | None = None
    while len(found) < limit:
        size = max(limit, _RUNS_AT_ONCE)
        page = await state.list_runs(table=table, before=before, limit=size)
        found += [run for run in page if wanted(run)]
        if len(page) < size:
            break
        before = page[-1]["run_id"]
    return found[:limit]
