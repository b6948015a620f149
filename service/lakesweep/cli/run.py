"""`lakesweep run`: one cycle over each table. Deletes only with `--execute`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cleanup import report as reports
from lakesweep.cli import documents, exit_codes, options, render, screen, session
from lakesweep.cli.targets import Targets
from lakesweep.model.run import CleanupRun

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def run(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET", help=f"{options.TARGET_HELP} All configured tables: '*'.")
    ],
    *,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute",
            help="Really expire and delete. Overrides dry_run = true in [orphan_cleanup]; a tenant's, dataset's or "
            "table's own dry_run = true still wins.",
        ),
    ] = False,
    as_json: options.Json = False,
    table_format: options.Format = None,
    root: options.Root = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Expire snapshots, then delete what nothing references.

    Without --execute this is a dry run: it tells what it would do and changes nothing.

    Exit codes: 0 done, 2 bad usage or settings, 3 refused by a guard, 4 failed or indeterminate. With several
    tables every one is tried and the greatest code wins.
    """

    async def body(opened: Session) -> exit_codes.ExitCode:
        wanted = Targets(opened, targets, table_format=table_format, root=root)
        if as_json:
            with documents.array("tables", sys.stdout) as tables:
                async for done in wanted.runs(execute=execute):
                    tables.add(reports.run_document(done))
        else:
            await _as_text(wanted, execute=execute)
        return exit_codes.gravest(wanted.codes)

    raise typer.Exit(session.run(body, config=config, debug=debug))


async def _as_text(wanted: Targets, *, execute: bool) -> None:
    console = screen.output()
    runs: list[CleanupRun] = []
    async for done in wanted.runs(execute=execute):
        runs.append(done)
        render.show_run(console, done, execute=execute)
        console.print()
    render.show_sum(console, runs)
