"""`lakesweep map`: who owns what below a tenant's root, and what nobody claims. Reads only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from lakesweep.cli import documents, exit_codes, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.lake_map import TenantMap


def lake_map(
    tenant: options.Tenant = None,
    *,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Show who owns what below each tenant's root.

    Every place with its table, files and bytes, places that overlap or are shared, ghosts, and what nobody claims.
    Lists the whole root. Changes nothing.

    Exit codes: 0 shown, 2 bad usage or settings, 4 storage could not be read.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon.lake_map import draw  # noqa: PLC0415 - heavy

        drawn: list[TenantMap] = []

        async def look(name: str) -> None:
            drawn.append(await draw(opened.app, name))

        codes = await session.each_tenant(opened, tenant, look)
        if as_json:
            sys.stdout.write(documents.dumps({"tenants": drawn}) + "\n")
        else:
            for one in drawn:
                show(screen.output(), one)
        return exit_codes.gravest(codes)

    raise typer.Exit(session.run(body, config=config, debug=debug))


def show(console: Console, drawn: TenantMap) -> None:
    """Places first, then what is odd about them."""
    console.print(screen.text(f"{drawn['tenant']}  {drawn['root']}", "bold cyan"), soft_wrap=True)
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
        console.print(screen.text(f"  {problem}", "red"), soft_wrap=True)
    for problem in drawn["unread"]:
        console.print(
            screen.text(f"  could not be read, so its places are not shown: {problem}", "red"), soft_wrap=True
        )
    unclaimed = f"{screen.size(drawn['unclaimed_bytes'])} in {screen.counted(drawn['unclaimed_files'], 'file')}"
    console.print(screen.text(f"unclaimed: {unclaimed}, ghosts included", "bold"))
    console.print()
