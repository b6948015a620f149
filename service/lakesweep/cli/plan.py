"""`lakesweep plan`: show what a run would expire and delete. Changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import documents, exit_codes, options, render, screen, session
from lakesweep.cli.targets import Targets
from lakesweep.model.files import Candidate
from lakesweep.model.run import CleanupRun

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.app import App


def plan(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help=f"{options.TARGET_HELP} Default: every configured table."),
    ] = None,
    *,
    files: Annotated[
        int,
        typer.Option(
            "--files",
            min=0,
            metavar="N",
            help="Show up to N of the files to delete, per table; --json has all.",
        ),
    ] = 10,
    as_json: options.Json = False,
    table_format: options.Format = None,
    root: options.Root = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Show what a run would do, and what stays and why.

    Changes nothing.

    Exit codes: 0 planned, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the greatest code wins.
    """

    async def body(opened: Session) -> exit_codes.ExitCode:
        wanted = Targets(opened, targets or [], table_format=table_format, root=root)
        await (_as_document(opened.app, wanted) if as_json else _as_text(opened.app, wanted, files))
        return exit_codes.gravest(wanted.codes)

    raise typer.Exit(session.run(body, config=config, debug=debug))


async def _as_document(app: App, wanted: Targets) -> None:
    with documents.array("tables", sys.stdout) as tables:
        async for run in wanted.runs(execute=False):
            await tables.add_plan(run, app.plan_rows(run))


async def _as_text(app: App, wanted: Targets, files: int) -> None:
    console = screen.output()
    runs: list[CleanupRun] = []
    async for run in wanted.runs(execute=False):
        runs.append(run)
        render.show_plan(console, run, await _first(app, run, files))
        console.print()
    render.show_sum(console, runs)


async def _first(app: App, run: CleanupRun, files: int) -> Sequence[Candidate]:
    rows: list[Candidate] = []
    if files and run.plan is not None:
        async for batch in app.candidates(run):
            rows.extend(batch[: files - len(rows)])
            if len(rows) >= files:
                break
    return rows
