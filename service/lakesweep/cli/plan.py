"""`lakesweep plan`: show what a run would expire and delete. Changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lakesweep.cli import completion, documents, exit_codes, options, render, screen, session, summary
from lakesweep.cli.summary import PlanSort
from lakesweep.cli.targets import Targets
from lakesweep.model.files import Candidate
from lakesweep.model.run import CleanupRun, Outcome

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.app import App


def plan(
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
    details: Annotated[
        bool, typer.Option("--details", help="Show every table in full, even if there are several.")
    ] = False,
    sort: Annotated[
        PlanSort | None, typer.Option("--sort", help="Order of several tables.", show_default=False)
    ] = None,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Show only tables with this outcome.", show_default=False)
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Show only tables that are refused or fail.")] = False,
    no_listing: options.NoListing = False,
    as_json: options.Json = False,
    older_than: options.OlderThan = None,
    retain_last: options.RetainLast = None,
    grace: options.Grace = None,
    table_format: options.Format = None,
    root: options.Root = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Show what a run would do, and what stays and why.

    Changes nothing. Several tables have one line each, a single one is shown in full.

    Exit codes: 0 planned, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the highest code wins.
    """

    async def body(opened: Session) -> exit_codes.ExitCode:
        wanted = Targets(opened, targets or [], table_format=table_format, root=root, no_listing=no_listing)
        if as_json:
            await _as_document(opened.app, wanted)
        else:
            look = _Look(files=files, details=details, sort=sort, outcome=outcome, refused=refused)
            await _as_text(opened.app, wanted, look)
        return exit_codes.gravest(wanted.codes)

    raise typer.Exit(session.run(body, config=config, debug=debug, rules=session.Rules(older_than, retain_last, grace)))


async def _as_document(app: App, wanted: Targets) -> None:
    with documents.array("tables", sys.stdout) as tables:
        async for run in wanted.runs(execute=False):
            await tables.add_plan(run, app.plan_rows(run))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a person wants to see."""

    files: int
    details: bool
    sort: PlanSort | None
    outcome: Outcome | None
    refused: bool

    def wants(self, run: CleanupRun) -> bool:
        return self.outcome in (None, run.outcome) and (not self.refused or summary.is_refused(run))


async def _as_text(app: App, wanted: Targets, look: _Look) -> None:
    """Tables in full come one by one; lines of many come together, when all are planned."""
    console = screen.output()
    runs: list[CleanupRun] = []
    async for run in wanted.runs(execute=False):
        if not look.wants(run):
            continue
        runs.append(run)
        if look.details:
            await _in_full(console, app, run, look.files)
    if look.details:
        render.show_sum(console, runs)
    elif len(runs) == 1:
        await _in_full(console, app, runs[0], look.files)
    elif runs:
        summary.show_plans(console, runs, look.sort)
    elif look.refused or look.outcome:
        console.print(screen.text("no table is refused" if look.refused else "no table has this outcome", "green"))


async def _in_full(console: Console, app: App, run: CleanupRun, files: int) -> None:
    render.show_plan(console, run, await _first(app, run, files))
    console.print()


async def _first(app: App, run: CleanupRun, files: int) -> Sequence[Candidate]:
    rows: list[Candidate] = []
    if files and run.plan is not None:
        async for batch in app.candidates(run):
            rows.extend(batch[: files - len(rows)])
            if len(rows) >= files:
                break
    return rows
