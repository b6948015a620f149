"""`lakesweep plan`: show what a run would expire and delete. Changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import completion, documents, exit_codes, options, render, screen, session, summary
from lakesweep.cli.summary import PlanSort
from lakesweep.cli.targets import Targets
from lakesweep.model.files import Candidate
from lakesweep.model.run import CleanupRun

if TYPE_CHECKING:
    from lakesweep.daemon.app import App


@session.command(*options.PLANNING)
async def plan(
    opened: session.Session,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            autocompletion=completion.targets,
            help=f"{options.TARGET_HELP} Default: every configured table.",
        ),
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
    details: options.Details = False,
    sort: Annotated[
        PlanSort | None, typer.Option("--sort", help="Order of several tables.", show_default=False)
    ] = None,
    outcome: options.ShownOutcome = None,
    refused: options.ShownRefused = False,
    no_listing: options.NoListing = False,
    as_json: options.Json = False,
) -> exit_codes.ExitCode:
    """Show what a run would do, and what stays and why.

    Changes nothing. Several tables have one line each, a single one is shown in full.

    Exit codes: 0 planned, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the highest code wins.
    """
    wanted = Targets(opened, targets or [], no_listing=no_listing)
    if as_json:
        with documents.array("tables", sys.stdout) as tables:
            async for run in wanted.runs(execute=False):
                await tables.add_plan(run, opened.app.plan_rows(run))
        return exit_codes.gravest(wanted.codes)
    console = screen.output()

    async def in_full(run: CleanupRun) -> None:
        render.show_plan(console, run, await _first(opened.app, run, files))
        console.print()

    look = summary.Look(details=details, outcome=outcome, refused=refused)
    shown = await look.show(
        console, wanted.runs(execute=False), in_full, partial(summary.show_plans, console, sort=sort)
    )
    if not (shown or details) and (refused or outcome):
        screen.line(console, "no table is refused" if refused else "no table has this outcome", "green")
    return exit_codes.gravest(wanted.codes)


async def _first(app: App, run: CleanupRun, files: int) -> Sequence[Candidate]:
    rows: list[Candidate] = []
    if files and run.plan is not None:
        async for batch in app.candidates(run):
            rows.extend(batch[: files - len(rows)])
            if len(rows) >= files:
                break
    return rows
