"""`lakesweep run`: one cycle over each table. Deletes only with `--execute`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from lakesweep.cleanup import report as reports
from lakesweep.cli import completion, documents, exit_codes, options, render, screen, session, summary
from lakesweep.cli.targets import ApprovedGhosts, Targets
from lakesweep.model.run import CleanupRun


def _check(*, targets: list[str] | None, ghosts: bool, **_: object) -> None:
    if not targets and not ghosts:
        raise typer.BadParameter("Missing argument 'TARGET': name tables, or '*' for all that are configured")


@session.command(*options.PLANNING, check=_check)
async def run(
    opened: session.Session,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            autocompletion=completion.targets,
            help=f"{options.TARGET_HELP} All configured tables: '*'. With --ghosts: tenants, by default all.",
            show_default=False,
        ),
    ] = None,
    *,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            help="Really expire and delete. Overrides dry_run = true in [orphan_cleanup]; a tenant's, dataset's or "
            "table's own dry_run = true still wins.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask on a terminal before --execute changes anything.")
    ] = False,
    ghosts: Annotated[
        bool,
        typer.Option(
            "--ghosts",
            help="Work on ghosts with an approved plan instead of tables: exactly that plan, or nothing of it.",
        ),
    ] = False,
    details: options.Details = False,
    sort: Annotated[
        summary.RunOrder | None, typer.Option("--sort", help="Order of several tables.", show_default=False)
    ] = None,
    outcome: options.ShownOutcome = None,
    refused: options.ShownRefused = False,
    no_listing: options.NoListing = False,
    as_json: options.Json = False,
) -> exit_codes.ExitCode:
    """Expire snapshots, then delete what nothing references.

    Without --execute this is a dry run: it shows what it would do and changes nothing. With it, on a terminal, the
    totals are shown first and must be confirmed once; scripts are never prompted. Several tables have one line each,
    a single one is shown in full.

    Exit codes: 0 done, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the highest code wins.
    """
    kind = ApprovedGhosts if ghosts else Targets
    wanted = kind(opened, targets or [], no_listing=no_listing)
    if execute and not yes and is_watched() and not await _agreed(wanted):
        return exit_codes.gravest(wanted.codes)
    if as_json:
        with documents.array("tables", sys.stdout) as tables:
            async for done in wanted.runs(execute=execute):
                tables.add(reports.run_document(done))
        return exit_codes.gravest(wanted.codes)
    console = screen.output()

    async def in_full(done: CleanupRun) -> None:
        render.show_run(console, done, execute=execute)
        console.print()

    look = summary.Look(details=details, outcome=outcome, refused=refused)
    shown = await look.show(
        console, wanted.runs(execute=execute), in_full, partial(summary.show_runs, console, order=sort)
    )
    if not (shown or details) and wanted.done:
        screen.line(console, "no table has this outcome", "green")
    return exit_codes.gravest(wanted.codes)


def is_watched() -> bool:
    """Does a person sit before it, who can be asked?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _agreed(wanted: Targets) -> bool:
    """Plan all tables, show what would go, and ask. True when the run may begin; the plans are then made anew."""
    async for _ in wanted.runs(execute=False):
        pass
    planned, codes = wanted.done, wanted.codes
    if exit_codes.ExitCode.INTERRUPTED in codes:
        return False
    totals = render.totals(planned)
    if totals is None:
        screen.complain("nothing to expire or delete")
        return False
    screen.complain(totals)
    if not typer.confirm("Expire and delete?", default=False, err=True):
        screen.complain("nothing was changed")
        return False
    wanted.again()
    return True
