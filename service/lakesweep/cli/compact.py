"""`lakesweep compact-manifests`: merge a Paimon table's manifests, and nothing else."""

from __future__ import annotations

from typing import Annotated

import typer

from lakesweep.cli import exit_codes, options, screen, session
from lakesweep.cli.targets import Targets
from lakesweep.model.errors import LakesweepError


@session.command("root")
async def compact_manifests(
    opened: session.Session,
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help=options.TARGET_HELP)],
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
    return exit_codes.gravest(wanted.codes)
