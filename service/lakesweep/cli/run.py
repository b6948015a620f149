"""`lakesweep run`: one cycle over each table. Deletes only with `--execute`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lakesweep.cleanup import report as reports
from lakesweep.cli import completion, documents, exit_codes, options, render, screen, session, summary
from lakesweep.cli.targets import ApprovedGhosts, Targets
from lakesweep.model.run import CleanupRun, Outcome

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def run(
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
    details: Annotated[
        bool, typer.Option("--details", help="Show every table in full, even if there are several.")
    ] = False,
    sort: Annotated[
        summary.RunOrder | None, typer.Option("--sort", help="Order of several tables.", show_default=False)
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
    """Expire snapshots, then delete what nothing references.

    Without --execute this is a dry run: it shows what it would do and changes nothing. With it, on a terminal, the
    totals are shown first and must be confirmed once; scripts are never prompted. Several tables have one line each,
    a single one is shown in full.

    Exit codes: 0 done, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the highest code wins.
    """

    if not targets and not ghosts:
        raise typer.BadParameter("Missing argument 'TARGET': name tables, or '*' for all that are configured")

    async def body(opened: Session) -> exit_codes.ExitCode:
        wanted: Targets
        if ghosts:
            wanted = ApprovedGhosts(opened, targets or [], table_format=table_format, root=root, no_listing=no_listing)
        else:
            wanted = Targets(opened, targets or [], table_format=table_format, root=root, no_listing=no_listing)
        if execute and not yes and is_watched() and not await _agreed(wanted):
            return exit_codes.gravest(wanted.codes)
        if as_json:
            with documents.array("tables", sys.stdout) as tables:
                async for done in wanted.runs(execute=execute):
                    tables.add(reports.run_document(done))
        else:
            shows = _Shows(execute=execute, details=details, sort=sort, outcome=outcome, refused=refused)
            await _as_text(wanted, shows)
        return exit_codes.gravest(wanted.codes)

    raise typer.Exit(session.run(body, config=config, debug=debug, rules=session.Rules(older_than, retain_last, grace)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shows:
    """What a person wants to see."""

    execute: bool
    details: bool
    sort: summary.RunOrder | None
    outcome: Outcome | None
    refused: bool

    def wants(self, run: CleanupRun) -> bool:
        return self.outcome in (None, run.outcome) and (not self.refused or summary.is_refused(run))


async def _as_text(wanted: Targets, shows: _Shows) -> None:
    """Tables in full come one by one; lines of many come together, when all have ended."""
    console = screen.output()
    runs: list[CleanupRun] = []
    async for done in wanted.runs(execute=shows.execute):
        if not shows.wants(done):
            continue
        runs.append(done)
        if shows.details:
            _in_full(console, done, execute=shows.execute)
    if shows.details:
        render.show_sum(console, runs)
    elif len(runs) == 1:
        _in_full(console, runs[0], execute=shows.execute)
    elif runs:
        summary.show_runs(console, runs, shows.sort)
    elif wanted.done:
        console.print(screen.text("no table has this outcome", "green"))


def _in_full(console: Console, run: CleanupRun, *, execute: bool) -> None:
    render.show_run(console, run, execute=execute)
    console.print()
