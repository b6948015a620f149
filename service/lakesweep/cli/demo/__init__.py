"""`lakesweep demo`: a small real lake, planned, cleaned and read again, in a directory of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from lakesweep.cli import exit_codes, screen, startup


def demo(
    *,
    keep: Annotated[
        Path | None, Option("--keep", metavar="DIR", help="Build the lake in this new directory and leave it there.")
    ] = None,
    build_only: Annotated[
        bool, Option("--build-only", help="Only build the lake, for --keep: plan and clean nothing.")
    ] = False,
) -> None:
    """Plan and clean a small real lake, and read it again.

    Shows what would be deleted and why, cleans it, and shows that every reader still sees the same rows.

    Needs no setup: the lake, its catalogs and the state are made in a temporary directory and removed at the end.
    If Java is installed, one table is planned on Spark.
    """
    startup.import_arrow()
    from lakesweep.cli.demo import tour  # noqa: PLC0415 - heavy, and only the demo needs it

    startup.finish()
    if keep is not None and keep.exists():
        screen.complain(f"--keep {keep}: it already exists; name a new directory")
        raise typer.Exit(exit_codes.ExitCode.USAGE)
    if build_only and keep is None:
        screen.complain("--build-only needs --keep DIR: without it the lake would be removed at once")
        raise typer.Exit(exit_codes.ExitCode.USAGE)
    if build_only and keep is not None:
        raise typer.Exit(tour.build(keep.absolute()))
    if keep is not None:
        raise typer.Exit(tour.go(keep.absolute(), kept=True))
    # Spark's JVM may still be writing there when this process ends.
    with tempfile.TemporaryDirectory(prefix="lakesweep-demo-", ignore_cleanup_errors=True) as directory:
        raise typer.Exit(tour.go(Path(directory)))
