"""`lakesweep plan` and `explain`, which change nothing; `run`, `serve` and `compact-manifests`, which change tables.

`run` deletes only with `--execute`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer
from typer import Argument, Option

from lakesweep.cleanup import report as reports
from lakesweep.cli import completion, documents, exit_codes, lists, options, render, screen, session, summary
from lakesweep.cli.summary import PlanSort
from lakesweep.cli.targets import ApprovedGhosts, Targets
from lakesweep.model.errors import LakesweepError
from lakesweep.model.run import CleanupRun


def _check(*, targets: list[str] | None, ghosts: bool, **_: object) -> None:
    if not targets and not ghosts:
        raise typer.BadParameter("Missing argument 'TARGET': name tables, or '*' for all that are configured")


@session.command(*options.PLANNING, check=_check)
async def run(
    opened: session.Session,
    targets: Annotated[
        list[str] | None,
        options.argument(
            metavar="TARGET",
            autocompletion=completion.targets,
            help=f"{options.TARGET_HELP} All configured tables: '*'. With --ghosts: tenants, by default all.",
        ),
    ] = None,
    *,
    execute: Annotated[
        bool,
        Option(
            "--execute",
            help="Really expire and delete. Overrides dry_run = true in [orphan_cleanup]; a tenant's, dataset's or "
            "table's own dry_run = true still wins.",
        ),
    ] = False,
    yes: Annotated[
        bool, Option("--yes", "-y", help="Do not ask on a terminal before --execute changes anything.")
    ] = False,
    ghosts: Annotated[
        bool,
        Option(
            "--ghosts",
            help="Work on ghosts instead of tables: on exactly the plan that was approved, or not at all.",
        ),
    ] = False,
    details: options.Details = False,
    sort: Annotated[summary.RunOrder | None, options.option("--sort", help="Order of several tables.")] = None,
    outcome: options.ShownOutcome = None,
    refused: options.ShownRefused = False,
    no_listing: options.NoListing = False,
    as_json: options.Json = False,
) -> exit_codes.ExitCode:
    """Expire snapshots, then delete what nothing references.

    Without --execute this is a dry run: it shows what it would do and changes nothing. With it, on a terminal, the
    totals are shown first and must be confirmed once; scripts are never prompted. Several tables get one line each,
    a single table is shown in full.

    Exit codes: 0 done, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the highest code wins.
    """
    kind = ApprovedGhosts if ghosts else Targets
    wanted = kind(opened, targets or [], no_listing=no_listing)
    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    if execute and not yes and can_ask and not await _agreed(wanted):
        return exit_codes.highest(wanted.codes)
    if as_json:
        with documents.array("tables", sys.stdout) as tables:
            async for done in wanted.runs(execute=execute):
                tables.add(reports.run_document(done))
        return exit_codes.highest(wanted.codes)
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
    return exit_codes.highest(wanted.codes)


async def _agreed(wanted: Targets) -> bool:
    """Plan all tables, show what would go, and ask. True when the run may begin; the plans are then made anew."""
    async for _ in wanted.runs(execute=False):
        pass
    planned, codes = wanted.done, wanted.codes
    if exit_codes.ExitCode.INTERRUPTED in codes:
        return False
    totals = summary.totals(planned)
    if totals is None:
        screen.complain("nothing to expire or delete")
        return False
    screen.complain(totals)
    if not typer.confirm("Expire and delete?", default=False, err=True):
        screen.complain("nothing was changed")
        return False
    wanted.again()
    return True


@session.command("root")
async def compact_manifests(
    opened: session.Session, targets: Annotated[list[str], Argument(metavar="TARGET", help=options.TARGET_HELP)]
) -> exit_codes.ExitCode:
    """Merge the manifests of Paimon tables in a commit.

    Rows, snapshots and files stay as they are; the manifests that the commit replaces are deleted when
    snapshots expire.

    Exit codes: 0 done, 2 bad usage or settings, 3 refused, 4 failed. With several tables every one is tried and the
    highest code wins.
    """
    wanted = Targets(opened, targets)
    console = screen.output()
    async for work in wanted.works():
        try:
            merged = await opened.app.compact_manifests(work)
        except LakesweepError as exc:
            screen.complain(f"{work.ref}: {exit_codes.sentence(exc)}")
            wanted.codes.append(exit_codes.of_error(exc))
            continue
        screen.line(console, f"{work.ref}: {'merged' if merged else 'nothing to merge'}")
        wanted.codes.append(exit_codes.ExitCode.DONE)
    return exit_codes.highest(wanted.codes)


@session.command(is_service=True)
async def serve(opened: session.Session) -> None:
    """Clean all configured tables on their schedules.

    Works on tables whose orphan_cleanup.enabled is true. SIGTERM stops it gracefully, SIGHUP or a changed file makes it
    read its settings again.

    Exit codes: 0 stopped gracefully, 2 bad usage or settings, 4 a part of the service failed.
    """
    from lakesweep.daemon.service import Service  # noqa: PLC0415 - heavy
    from lakesweep.settings.load import load, settings_file  # noqa: PLC0415 - heavy

    def announce(address: str) -> None:
        if sys.stderr.isatty():  # elsewhere it is in the log, which programs read line by line
            screen.complain(f"the dashboard is at {address}")

    service = Service(
        opened.app, file=settings_file(opened.config), load=lambda: load(opened.config), announce=announce
    )
    await service.run()


@session.command(*options.PLANNING)
async def plan(
    opened: session.Session,
    targets: Annotated[
        list[str] | None,
        Argument(
            metavar="TARGET",
            autocompletion=completion.targets,
            help=f"{options.TARGET_HELP} Default: every configured table.",
        ),
    ] = None,
    *,
    files: Annotated[
        int,
        Option("--files", min=0, metavar="N", help="Show up to N of the files to delete, per table; --json has all."),
    ] = 10,
    details: options.Details = False,
    sort: Annotated[PlanSort | None, options.option("--sort", help="Order of several tables.")] = None,
    outcome: options.ShownOutcome = None,
    refused: options.ShownRefused = False,
    no_listing: options.NoListing = False,
    as_json: options.Json = False,
) -> exit_codes.ExitCode:
    """Show what a run would do, and what stays and why.

    Changes nothing. Several tables get one line each, a single table is shown in full.

    Exit codes: 0 planned, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the highest code wins.
    """
    wanted = Targets(opened, targets or [], no_listing=no_listing)
    if as_json:
        with documents.array("tables", sys.stdout) as tables:
            async for run in wanted.runs(execute=False):
                await tables.add_plan(run, opened.app.plan_rows(run))
        return exit_codes.highest(wanted.codes)
    console = screen.output()

    async def in_full(run: CleanupRun) -> None:
        first = await opened.app.artifacts.page(run.plan.rows_path, 0, files) if files and run.plan else ()
        render.show_plan(console, run, first)
        console.print()

    look = summary.Look(details=details, outcome=outcome, refused=refused)
    shown = await look.show(
        console, wanted.runs(execute=False), in_full, partial(summary.show_plans, console, sort=sort)
    )
    if not (shown or details) and (refused or outcome):
        screen.line(console, "no table is refused" if refused else "no table has this outcome", "green")
    return exit_codes.highest(wanted.codes)


@session.command(*options.PLANNING)
async def explain(
    opened: session.Session,
    path: Annotated[str, Argument(metavar="PATH", help="Full address of one stored file, as a plan shows it.")],
    target: Annotated[
        str | None,
        options.option(
            "--target",
            metavar="TARGET",
            autocompletion=completion.targets,
            help="The table it belongs to: tenant/dataset/table or a location. Default: the configured table that "
            "holds the path.",
        ),
    ] = None,
    *,
    as_json: options.Json = False,
) -> None:
    """Explain why a file stays, or when it may be deleted.

    Names the snapshots, branches, tags and manifests that keep it, or the evidence that nothing does. Takes the
    same options as `plan`, and with the same options gives the same answer.

    Exit codes: 0 explained, 2 bad usage or settings, 3 outside the table, 4 the table cannot be read.
    """
    explanation = await opened.app.explain(path, target=target, format=opened.format, root=opened.root)
    if as_json:
        documents.write(explanation.document)
    else:
        lists.show_explanation(screen.output(), explanation)
