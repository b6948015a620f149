"""`lakesweep ghosts` and `map`: directories that look like tables and that nobody claims, and who owns the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from lakesweep.cleanup import report as reports
from lakesweep.cli import documents, exit_codes, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import Refused
from lakesweep.model.ghost import Ghost, digest, document
from lakesweep.model.refusal import consequences
from lakesweep.model.run import CleanupRun, Outcome

if TYPE_CHECKING:
    from lakesweep.daemon.app import App
    from lakesweep.daemon.lake_map import TenantMap

MOST_PLANNED = 200


@session.command()
async def ghosts(
    opened: session.Session,
    tenant: options.Tenant = None,
    *,
    plan: Annotated[bool, Option("--plan", help="Save a plan for each; `approve` with its digest allows it.")] = False,
    as_json: options.Json = False,
) -> ExitCode:
    """Find directories of former tables that nobody claims.

    Looks below each tenant's root. Deletes nothing: only you know whether a catalog that is not configured still
    uses them. A tenant with a catalog or table that cannot be read is refused. With --plan each ghost gets a plan of
    its own; `lakesweep approve RUN --digest DIGEST` allows it, `lakesweep run --ghosts --execute` carries it out.

    Exit codes: 0 searched or planned, 2 bad usage or settings, 3 refused by a guard, 4 failed or storage could not be
    read. A plan that only waits for its approval counts as 0.
    """
    found: list[Ghost] = []
    unsearched: set[str] = set()
    refused: list[dict[str, str]] = []
    runs: dict[str, CleanupRun] = {}

    async def look(name: str) -> None:
        unsearched.add(name)
        try:
            some = await opened.app.ghosts(name)
        except Refused as exc:
            refused.append({"tenant": name, "code": exc.code, "reason": exc.reason})
            raise
        unsearched.discard(name)
        found.extend(some)
        if plan:
            runs.update(await _plans(opened.app, name, some))

    codes = await session.each_tenant(opened, tenant, look)
    if as_json:
        document = {"ghosts": [_document(one, runs) for one in found], "digest": digest(found)}
        documents.write({**document, "refused": refused} if refused else document)
    else:
        _show(screen.output(), found, runs, unsearched=len(unsearched))
    return exit_codes.highest([*codes, *(exit_codes.of_run(run) for run in runs.values() if not _waits(run))])


async def _plans(app: App, tenant: str, found: Sequence[Ghost]) -> dict[str, CleanupRun]:
    """By location: the run that planned it. A tenant that makes thousands of them has them planned in several calls."""
    works = app.ghost_search(tenant)
    largest = sorted(found, key=lambda one: (-one.bytes, one.location))
    if len(largest) > MOST_PLANNED:
        screen.complain(f"{tenant}: only the {MOST_PLANNED} largest of {len(largest)} ghosts are planned at once")
    return {ghost.location: await app.plan(works.work(ghost)) for ghost in largest[:MOST_PLANNED]}


def _waits(run: CleanupRun) -> bool:
    return run.refusal is not None and consequences(run.refusal.code).approvable


def _document(ghost: Ghost, runs: Mapping[str, CleanupRun]) -> dict[str, object]:
    run = runs.get(ghost.location)
    return {**document(ghost), **({"plan": reports.run_document(run)} if run else {})}


def _show(console: Console, found: Sequence[Ghost], runs: Mapping[str, CleanupRun], *, unsearched: int) -> None:
    """Each with its evidence; the largest first. `unsearched` tenants may have more."""
    for ghost in sorted(found, key=lambda one: (-one.bytes, one.location)):
        size = f"{screen.size(ghost.bytes)} in {screen.counted(ghost.files, 'file')}"
        screen.long_line(console, ghost.location, "bold cyan")
        newest = screen.moment(ghost.newest_modified_at)
        screen.long_line(console, f"  {ghost.format}, {size}, newest change {newest}")
        for sentence in ghost.evidence:
            screen.long_line(console, f"  - {sentence}", "dim")
        if (run := runs.get(ghost.location)) is not None:
            _show_plan(console, run)
    parts = []
    if found:
        parts += [screen.counted(len(found), "ghost"), screen.size(sum(one.bytes for one in found))]
    elif not unsearched:
        parts.append("no ghosts")
    if unsearched:
        parts.append(f"{screen.counted(unsearched, 'tenant')} not searched")
    screen.line(console, ", ".join(parts), "bold")


def _show_plan(console: Console, run: CleanupRun) -> None:
    if _waits(run) and run.plan is not None:
        going = f"{screen.counted(run.plan.candidates.files, 'file')}, {screen.size(run.plan.candidates.bytes)}"
        screen.long_line(console, f"  planned: {going}; `lakesweep show {run.id}` shows them", "yellow")
        command = f"lakesweep approve {run.id} --digest {run.plan.digest}"
        screen.long_line(console, f"  to approve it: {command}", "yellow")
    elif run.outcome is Outcome.DRY_RUN:
        screen.long_line(console, "  approved: `lakesweep run --ghosts --execute` deletes it", "yellow")
    else:
        screen.long_line(console, f"  stays: {run.reason}", "red")


@session.command()
async def lake_map(
    opened: session.Session, tenant: options.Tenant = None, *, as_json: options.Json = False
) -> ExitCode:
    """Show who owns what below each tenant's root.

    Every place with its table, files and bytes, places that overlap or are shared, ghosts, and what nobody claims.
    Lists the whole root. Changes nothing.

    Exit codes: 0 shown, 2 bad usage or settings, 4 storage, a catalog or a table could not be read.
    """
    from lakesweep.daemon.lake_map import draw  # noqa: PLC0415 - heavy

    drawn: list[TenantMap] = []

    async def look(name: str) -> None:
        drawn.append(await draw(opened.app, name))

    codes = await session.each_tenant(opened, tenant, look)
    codes += [ExitCode.FAILED for one in drawn if one["unread"]]
    if as_json:
        documents.write({"tenants": drawn})
    else:
        for one in drawn:
            _show_map(screen.output(), one)
    return exit_codes.highest(codes)


def _show_map(console: Console, drawn: TenantMap) -> None:
    screen.long_line(console, f"{drawn['tenant']}  {drawn['root']}", "bold cyan")
    shown = screen.table(
        console, "size", "files", "whose", "place", numbers=("size", "files"), paths=("whose", "place")
    )
    for place in drawn["places"]:
        whose = screen.text(", ".join(place["tables"]))
        shown.add_row(screen.size(place["bytes"]), screen.count(place["files"]), whose, screen.text(place["location"]))
    for one in drawn["trash"]:
        numbers = (screen.size(one["bytes"]), screen.count(one["files"]))
        shown.add_row(*numbers, screen.text("trash", "dim"), screen.text(one["location"]))
    for ghost in drawn["ghosts"]:
        numbers = (screen.size(ghost["bytes"]), screen.count(ghost["files"]))
        shown.add_row(*numbers, screen.text("ghost", "yellow"), screen.text(ghost["location"]))
    for one in drawn["unclaimed"]:
        inside = [ghost for ghost in drawn["ghosts"] if ghost["location"].startswith(one["location"].rstrip("/") + "/")]
        inside = [] if one["location"].rstrip("/") == drawn["root"].rstrip("/") else inside
        files = one["files"] - sum(ghost["files"] for ghost in inside)
        size = one["bytes"] - sum(ghost["bytes"] for ghost in inside)
        if files > 0:
            numbers = (screen.size(max(0, size)), screen.count(files))
            shown.add_row(*numbers, screen.text("nobody", "yellow"), screen.text(one["location"]))
    if shown.row_count:
        console.print(shown)
    for outer, inner in drawn["overlaps"]:
        problem = f"{outer} is shared" if outer == inner else f"{outer} contains {inner}, of another table"
        screen.long_line(console, f"  {problem}", "red")
    for problem in drawn["unread"]:
        screen.long_line(console, f"  could not be read, so its places are not shown: {problem}", "red")
    unclaimed = f"{screen.size(drawn['unclaimed_bytes'])} in {screen.counted(drawn['unclaimed_files'], 'file')}"
    screen.line(console, f"unclaimed: {unclaimed}, ghosts included", "bold")
    console.print()
