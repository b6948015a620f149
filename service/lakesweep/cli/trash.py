"""`lakesweep trash`: what lies in the trash, and until when. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import documents, options, screen, session
from lakesweep.model.table import BARE_TENANT

if TYPE_CHECKING:
    from lakesweep.model import trash_document
    from lakesweep.ports.state import StateStore

_RUNS_LOOKED_AT = 200
"""Of bare locations, the newest."""


@session.command()
async def trash(
    opened: session.Session,
    tenant: Annotated[str | None, typer.Argument(metavar="TENANT", help="Only this tenant's.")] = None,
    *,
    as_json: options.Json = False,
) -> None:
    """Show what is in the trash.

    Per run: its table, how much of what it moved is still there, and until when. `lakesweep restore` restores it.

    Exit codes: 0 shown, 2 bad usage or settings or no such tenant, 4 the trash cannot be read.
    """
    from lakesweep.daemon import targets, trash_keeper  # noqa: PLC0415 - heavy

    tenants = [one for one in opened.settings.tenants if tenant in (None, one.id)]
    if tenant is not None and not tenants:
        raise targets.unknown_tenant(tenant, (one.id for one in opened.settings.tenants))
    places = [place for one in tenants for place in await trash_keeper.shown(opened.app, one)]
    if as_json:
        documents.write({"trash": places})
    else:
        _show(places)
    if tenant is None:
        await _tell_locations(opened.app.state)


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


async def _tell_locations(state: StateStore) -> None:
    """Runs of bare locations have a trash that is no tenant's, so nobody lists or empties it."""
    runs = await state.list_runs(tenants=[BARE_TENANT], limit=_RUNS_LOOKED_AT)
    restored = {run["restored"]["run_id"] for run in runs if run["restored"]}
    for run in runs:
        if run["trash"] and run["deleted"]["count"] and run["run_id"] not in restored:
            screen.complain(
                f"run {run['run_id']} moved {screen.counted(run['deleted']['count'], 'file')} of {run['location']} to "
                f"{run['trash']['place']}, which no service empties"
            )
