"""`lakesweep restore`: take a run back."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.aio import StopRequest
from lakesweep.cleanup import trash_report
from lakesweep.cli import documents, interrupts, options, screen, session
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import Interrupted, Refused
from lakesweep.model.run import Outcome, Restored

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.taken_run import Undone

_NAMED = 10
"""Files that cannot be restored and are named on the screen; --json has up to a thousand."""

_INTERRUPTED = "interrupted by Ctrl-C; the same command continues"


def restore(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of the run to restore, or its beginning, as in `lakesweep runs`.")
    ],
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="GLOB", help="Only files whose address or name matches; may be repeated."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be restored, and change nothing.")
    ] = False,
    as_json: options.Json = False,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Restore the files that a run took.

    From the trash (`deletion = "trash"`) or, in a bucket with versioning, by removing the delete markers that the run
    left. Each file goes back to its own address, never over an existing one. The table is paused first, so that
    nothing of it is deleted again, until `lakesweep resume`.

    Exit codes: 0 restored, 2 bad usage or settings or no such run, 3 nothing can be restored, 4 failed.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import targets  # noqa: PLC0415 - heavy
        from lakesweep.daemon.app import new_run_id  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy

        run_id = await targets.whole_run_id(opened.app.state, run)
        restoring, stop = opened.app.restoring(run_id, path or (), this_user()), StopRequest()
        try:
            if dry_run:
                undone = await restoring.plan()
            else:
                with interrupts.stop_on_interrupt(stop, _INTERRUPTED):
                    undone = await restoring.execute(new_run_id(), stop)
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
            _show(undone, await restoring.held_scope(), dry_run=dry_run)
        for remark in (undone.remark, None if undone.result.not_restorable else undone.why_in_vain):
            if remark:
                screen.complain(remark)
        if undone.run is not None and undone.run.outcome is Outcome.FAILED:
            screen.complain(undone.run.reason or "failed")
            return ExitCode.INTERRUPTED if undone.run.reason == _INTERRUPTED else ExitCode.FAILED
        return ExitCode.REFUSED if undone.in_vain else ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))


def _print(result: Restored, *, paused: bool) -> None:
    print(documents.dumps(trash_report.restore_document(result, paused=paused)), file=sys.stdout)


def _show(undone: Undone, scope: str | None, *, dry_run: bool) -> None:
    result, out = undone.result, screen.output()
    verb = "would be restored" if dry_run else "restored"
    files = screen.counted(result.restored.files, "file")
    lines = [f"run {result.of} of {undone.taken['table']}: {files} {verb} ({screen.size(result.restored.bytes)})"]
    if result.already_there:
        lines.append(f"already there: {screen.counted(result.already_there, 'file')}")
    if result.not_restorable:
        lines.append(f"not restorable: {screen.counted(result.not_restorable, 'file')}")
        lines += [f"  {one.path}: {one.why}" for one in result.examples[:_NAMED]]
    if undone.run is not None:
        resume = f"lakesweep resume {shlex.quote(scope or undone.taken['table'])}"
        lines.append(f"this is run {undone.run.id}; the table is paused: `{resume}` lets it be cleaned again")
    for line in lines:
        out.print(screen.text(line))
