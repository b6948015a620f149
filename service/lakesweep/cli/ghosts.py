"""`lakesweep ghosts`: directories that look like tables and that nobody claims, and plans to delete them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lakesweep.cleanup import report as reports
from lakesweep.cli import documents, exit_codes, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.ghost import Ghost, digest, document
from lakesweep.model.refusal import consequences
from lakesweep.model.run import CleanupRun, Outcome

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.app import App


MOST_PLANNED = 200
"""Of one tenant in one call."""


def ghosts(
    tenant: options.Tenant = None,
    *,
    plan: Annotated[
        bool, typer.Option("--plan", help="Save a plan for each; `approve` with its digest allows it.")
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Find directories of former tables that nobody claims.

    Looks below each tenant's root. Deletes nothing: only you know whether a catalog that is not configured still
    uses them. A tenant with a catalog or table that cannot be read is refused. With --plan each ghost gets a plan of
    its own; `lakesweep approve RUN --digest DIGEST` allows it, `lakesweep run --ghosts --execute` carries it out.

    Exit codes: 0 searched or planned, 2 bad usage or settings, 3 refused by a guard, 4 failed or storage could not be
    read. A plan that only waits for its approval counts as 0.
    """

    async def body(opened: Session) -> ExitCode:
        found: list[Ghost] = []
        runs: dict[str, CleanupRun] = {}

        async def look(name: str) -> None:
            some = await opened.app.ghosts(name)
            found.extend(some)
            if plan:
                runs.update(await _plans(opened.app, name, some))

        codes = await session.each_tenant(opened, tenant, look)
        if as_json:
            document = {"ghosts": [_document(one, runs) for one in found], "digest": digest(found)}
            sys.stdout.write(documents.dumps(document) + "\n")
        else:
            show(screen.output(), found, runs)
        return exit_codes.gravest([*codes, *(_code(run) for run in runs.values())])

    raise typer.Exit(session.run(body, config=config, debug=debug))


async def _plans(app: App, tenant: str, found: Sequence[Ghost]) -> dict[str, CleanupRun]:
    """By location: the run that planned it. A tenant that makes thousands of them has them planned in several calls."""
    works = app.ghost_hunt(tenant)
    largest = sorted(found, key=lambda one: (-one.bytes, one.location))
    if len(largest) > MOST_PLANNED:
        screen.complain(f"{tenant}: only the {MOST_PLANNED} largest of {len(largest)} ghosts are planned at once")
    return {ghost.location: await app.plan(works.work(ghost)) for ghost in largest[:MOST_PLANNED]}


def _waits(run: CleanupRun) -> bool:
    return run.refusal is not None and consequences(run.refusal.code).approvable


def _code(run: CleanupRun) -> ExitCode:
    return ExitCode.DONE if _waits(run) else exit_codes.of_run(run)


def _document(ghost: Ghost, runs: Mapping[str, CleanupRun]) -> dict[str, object]:
    run = runs.get(ghost.location)
    if run is None:
        return {**document(ghost)}
    return {**document(ghost), "plan": reports.run_document(run)}


def show(console: Console, found: Sequence[Ghost], runs: Mapping[str, CleanupRun]) -> None:
    """Each with its evidence; the largest first."""
    for ghost in sorted(found, key=lambda one: (-one.bytes, one.location)):
        size = f"{screen.size(ghost.bytes)} in {screen.counted(ghost.files, 'file')}"
        console.print(screen.text(ghost.location, "bold cyan"), soft_wrap=True)
        newest = screen.moment(ghost.newest_modified_at)
        console.print(screen.text(f"  {ghost.format}, {size}, newest change {newest}"), soft_wrap=True)
        for sentence in ghost.evidence:
            console.print(screen.text(f"  - {sentence}", "dim"), soft_wrap=True)
        if (run := runs.get(ghost.location)) is not None:
            _show_plan(console, run)
    total = screen.size(sum(one.bytes for one in found))
    console.print(screen.text(f"{screen.counted(len(found), 'ghost')}, {total}" if found else "no ghosts", "bold"))


def _show_plan(console: Console, run: CleanupRun) -> None:
    if _waits(run) and run.plan is not None:
        going = f"{screen.counted(run.plan.candidates.files, 'file')}, {screen.size(run.plan.candidates.bytes)}"
        console.print(
            screen.text(f"  planned: {going}; `lakesweep show {run.id}` shows them", "yellow"), soft_wrap=True
        )
        command = f"lakesweep approve {run.id} --digest {run.plan.digest}"
        console.print(screen.text(f"  to approve it: {command}", "yellow"), soft_wrap=True)
    elif run.outcome is Outcome.DRY_RUN:
        line = "  approved: `lakesweep run --ghosts --execute` deletes it"
        console.print(screen.text(line, "yellow"), soft_wrap=True)
    else:
        console.print(screen.text(f"  stays: {run.reason}", "red"), soft_wrap=True)
