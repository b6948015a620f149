"""`lakesweep approve`: let a plan go that a ceiling has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import options, screen, session
from lakesweep.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session


def approve(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Id of the refused run, or its beginning, as `lakesweep runs` shows it."),
    ],
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest", metavar="SHA256", help="Approve only if the plan has this digest.", show_default=False
        ),
    ] = None,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Approve a plan that exceeds its ceilings.

    The table is planned again and everything is checked again; the files of the approved plan no longer count
    against the ceilings, for orphan_cleanup.approval_hours from now.

    Exit codes: 0 approved, 2 bad usage or settings or no such run, 3 the run does not wait for an approval, 4 failed.
    """

    async def body(opened: Session) -> ExitCode:
        from lakesweep.daemon import targets  # noqa: PLC0415 - heavy
        from lakesweep.daemon.audit_factory import this_user  # noqa: PLC0415 - heavy

        run_id = await targets.whole_run_id(opened.app.state, run)
        approval = await opened.app.approve(run_id, by=this_user().who, digest=digest)
        header = await opened.app.state.get_plan(run_id)
        files = header.candidates if header else 0
        screen.output().print(
            screen.text(
                f"approved: {screen.counted(files, 'file')} of {approval.table} may be deleted until "
                f"{approval.expires_at:%Y-%m-%d %H:%M} UTC, in its next run"
            )
        )
        if remark := opened.app.approval_remark(approval.table):
            screen.complain(remark)
        return ExitCode.DONE

    raise typer.Exit(session.run(body, config=config, debug=debug))
