"""`lakesweep trash` and `restore`: what is in the trash, and until when; restore a run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lakesweep.aio import StopRequest
from lakesweep.cleanup import trash_report
from lakesweep.cli import documents, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.cli.interrupts import stop_on_interrupt
from lakesweep.model.errors import Interrupted, Refused
from lakesweep.model.run import Outcome, Restored
from lakesweep.model.table import BARE_TENANT

if TYPE_CHECKING:
    from lakesweep.daemon.taken_run import Undone
    from lakesweep.model import trash_document
    from lakesweep.ports.state import StateStore

_RUNS_LOOKED_AT = 200
"""Of bare locations, the newest."""
_NAMED = 10
"""Files that cannot be restored and are named on the screen; --json has up to a thousand."""

_THEN = "the same command continues"


@session.command()
async def trash(
    opened: session.Session,
    tenant: Annotated[str | None, Argument(metavar="TENANT", help="Only this tenant's.")] = None,
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
        await _report_bare_locations(opened.app.state)


def _show(places: list[trash_document.TrashPlace]) -> None:
    out, empty = screen.output(), True
    for place in places:
        for run in place["runs"]:
            empty = False
            until = f"until {run['until'][:16].replace('T', ' ')} UTC" if run["until"] else "its run is under way"
            size = f"{screen.counted(run['count'], 'file')}, {screen.size(run['bytes'])}"
            screen.line(out, f"{run['run_id']}  {run['table']}  {size}  {until}")
        if place["foreign"]["count"]:
            empty = False
            size = f"{screen.counted(place['foreign']['count'], 'file')}, {screen.size(place['foreign']['bytes'])}"
            screen.line(out, f"{place['place']}: {size} not moved there by a known run: never deleted")
    if empty:
        screen.line(out, "the trash is empty")


async def _report_bare_locations(state: StateStore) -> None:
    """Runs of bare locations have a trash that is no tenant's, so nobody lists or empties it."""
    runs = await state.list_runs(tenants=[BARE_TENANT], limit=_RUNS_LOOKED_AT)
    restored = {run["restored"]["run_id"] for run in runs if run["restored"]}
    for run in runs:
        if run["trash"] and run["deleted"]["count"] and run["run_id"] not in restored:
            screen.complain(
                f"run {run['run_id']} moved {screen.counted(run['deleted']['count'], 'file')} of {run['location']} to "
                f"{run['trash']['place']}, which no service empties"
            )


@session.command()
async def restore(
    opened: session.Session,
    run: Annotated[
        str, Argument(metavar="RUN", help="Id of the run to restore, or its beginning, as in `lakesweep runs`.")
    ],
    path: Annotated[
        list[str] | None,
        Option("--path", metavar="GLOB", help="Only files whose address or name matches; may be repeated."),
    ] = None,
    *,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be restored, and change nothing.")] = False,
    as_json: options.Json = False,
) -> ExitCode:
    """Restore the files that a run deleted.

    From the trash (`deletion = "trash"`) or, in a bucket with versioning, by removing the delete markers that the run
    left. Each file goes back to its own address, never over an existing one. The table is held first, so that
    nothing of it is deleted again, until `lakesweep resume`.

    Exit codes: 0 restored, 2 bad usage or settings or no such run, 3 nothing can be restored, 4 failed.
    """
    from lakesweep.daemon import app, audit_factory, targets  # noqa: PLC0415 - heavy

    run_id = await targets.whole_run_id(opened.app.state, run)
    restoring, stop = opened.app.restoring(run_id, path or (), audit_factory.this_user()), StopRequest()
    try:
        if dry_run:
            undone = await restoring.plan()
        else:
            with stop_on_interrupt(stop, _THEN):
                undone = await restoring.execute(app.new_run_id(), stop)
    except Interrupted as exc:  # before anything was moved
        screen.complain(str(exc))
        return ExitCode.INTERRUPTED
    except Refused:
        if as_json:
            _print(Restored(of=run_id), paused=await restoring.held_scope() is not None)
        raise
    if as_json:
        _print(undone.result, paused=undone.paused)
    else:
        _show_restored(undone, await restoring.held_scope(), dry_run=dry_run)
    for remark in (undone.remark, None if undone.result.not_restorable else undone.why_nothing_restored):
        if remark:
            screen.complain(remark)
    failed = undone.run if undone.run is not None and undone.run.outcome is Outcome.FAILED else None
    if failed:
        screen.complain(failed.reason or "failed")
    if stop.by_user:
        return ExitCode.INTERRUPTED
    if failed:
        return ExitCode.FAILED
    return ExitCode.REFUSED if undone.why_nothing_restored else ExitCode.DONE


def _print(result: Restored, *, paused: bool) -> None:
    documents.write(trash_report.restore_document(result, paused=paused))


def _show_restored(undone: Undone, scope: str | None, *, dry_run: bool) -> None:
    result, out = undone.result, screen.output()
    verb = "would be restored" if dry_run else "restored"
    files = screen.counted(result.restored.files, "file")
    lines = [f"run {result.of} of {undone.taken['table']}: {files} {verb} ({screen.size(result.restored.bytes)})"]
    if result.already_there:
        lines.append(f"already there: {screen.counted(result.already_there, 'file')}")
    if result.not_restorable:
        lines.append(f"not restorable: {screen.counted(result.not_restorable, 'file')}")
        lines += [f"  {one.path}: {one.why}" for one in result.examples[:_NAMED]]
        if (others := result.not_restorable - len(result.examples[:_NAMED])) > 0:
            lines.append(f"  … and {screen.counted(others, 'more file')}")
    if undone.run is not None:
        resume = f"lakesweep resume {shlex.quote(scope or undone.taken['table'])}"
        lines.append(f"this is run {undone.run.id}; the table is held: `{resume}` lets it be cleaned again")
    for line in lines:
        screen.line(out, line)
