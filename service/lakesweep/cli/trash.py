"""`lakesweep trash`: what lies in the trash, and until when. Reads only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import documents, options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.model import trash_document


def trash(
    tenant: Annotated[str | None, typer.Argument(metavar="TENANT", help="Only this tenant's.")] = None,
    *,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Show what is in the trash.

    Per run: its table, how much of what it moved is still there, and until when. `lakesweep restore` restores it.

    Exit codes: 0 shown, 2 bad usage or settings or no such tenant, 4 the trash cannot be read.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import targets, trash_keeper  # noqa: PLC0415 - heavy

        tenants = [one for one in opened.settings.tenants if tenant in (None, one.id)]
        if tenant is not None and not tenants:
            raise targets.unknown_tenant(tenant, (one.id for one in opened.settings.tenants))
        places = [place for one in tenants for place in await trash_keeper.shown(opened.app, one)]
        if as_json:
            print(documents.dumps({"trash": places}), file=sys.stdout)
        else:
            _show(places)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def _show(places: list[trash_document.TrashPlace]) -> None:
    out, empty = screen.output(), True
    for place in places:
        for run in place["runs"]:
            empty = False
            until = f"until {run['until'][:16].replace('T', ' ')} UTC" if run["until"] else "its run is under way"
            size = f"{screen.counted(run['count'], 'file')}, {screen.size(run['bytes'])}"
            out.print(screen.text(f"{run['run_id']}  {run['table']}  {size}  {until}"))
        if place["foreign"]["count"]:
            empty = False
            size = f"{screen.counted(place['foreign']['count'], 'file')}, {screen.size(place['foreign']['bytes'])}"
            out.print(screen.text(f"{place['place']}: {size} that no known run moved there, which stay"))
    if empty:
        out.print(screen.text("the trash is empty"))
