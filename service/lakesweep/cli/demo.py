"""`lakesweep demo`: a small real lake, planned, cleaned and read again, in a directory of its own."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakesweep.cli import exits, render, screen
from lakesweep.model.run import CleanupRun, Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from lakesweep.cli.demo_lake import DemoLake, Rows
    from lakesweep.daemon.app import App

_FILES_SHOWN = 4


def demo(
    *,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Build the lake in this new directory and leave it there."),
    ] = None,
) -> None:
    """Plan and clean a small real lake, and read it again.

    Shows what would go and why, cleans it, and shows that every reader still sees the same rows.

    Needs nothing: the lake, its catalogs and the state are made in a temporary directory and removed at the end.
    """
    if keep is not None and keep.exists():
        screen.complain(f"--keep {keep}: there is something already; name a new directory")
        raise typer.Exit(exits.ExitCode.USAGE)
    if keep is not None:
        raise typer.Exit(_run(keep.absolute()))
    with tempfile.TemporaryDirectory(prefix="lakesweep-demo-") as directory:
        raise typer.Exit(_run(Path(directory)))


def _run(directory: Path) -> exits.ExitCode:
    from lakesweep.cli import demo_lake  # noqa: PLC0415 - heavy, and only the demo needs it
    from lakesweep.settings.schema import LoggingSettings  # noqa: PLC0415 - heavy
    from lakesweep.telemetry import logs  # noqa: PLC0415 - heavy

    logs.configure(LoggingSettings(), at_least=logging.ERROR)
    console = screen.output()
    _title(console, "1. A small lake", f"Two tenants, Iceberg tables written by pyiceberg, in {directory}")
    lake = demo_lake.build(directory / "lake")
    return asyncio.run(_show(console, lake, directory))


async def _show(console: Console, lake: DemoLake, directory: Path) -> exits.ExitCode:
    from lakesweep.daemon.app import App  # noqa: PLC0415 - heavy
    from lakesweep.settings.schema import Settings  # noqa: PLC0415 - heavy

    files, size_bytes = lake.size()
    console.print(screen.text(f"{screen.counted(files, 'file')}, {screen.size(size_bytes)}"))
    before = _read_all(lake)
    settings = Settings.model_validate({**lake.settings, "service": {"data_dir": directory / "state"}})
    async with App.open(settings) as app:
        _title(console, "2. lakesweep plan", "What would go, what stays and why. Nothing is changed.")
        for work in await app.resolve(None):
            run = await app.plan(work)
            first = [row async for batch in app.candidates(run) for row in batch][:_FILES_SHOWN]
            render.show_plan(console, run, first)
            console.print()
        _title(console, "3. lakesweep run --execute", "Expire snapshots, then delete what nothing references.")
        runs = await _clean(console, app)
    _title(console, "4. Afterwards", "")
    return _compare(console, lake, before, runs, (files, size_bytes))


async def _clean(console: Console, app: App) -> list[CleanupRun]:
    runs = []
    for work in await app.resolve(None):
        run = await app.run(work, execute=True)
        render.show_run(console, run, execute=True)
        console.print()
        runs.append(run)
    return runs


def _compare(
    console: Console, lake: DemoLake, before: dict[str, Rows], runs: list[CleanupRun], size_before: tuple[int, int]
) -> exits.ExitCode:
    """Before and after, and whether every state that had a name still reads the same rows."""
    files, size_bytes = lake.size()
    console.print(
        screen.text(
            f"lake: {size_before[0]} files, {screen.size(size_before[1])}  ->  {files} files, {screen.size(size_bytes)}"
        )
    )
    after = _read_all(lake)
    shown = screen.table(console, "table", "outcome", "deleted", "rows read before and after", numbers=("deleted",))
    for run in runs:
        label = run.table.label
        same = before.get(label) == after.get(label)
        rows = ", ".join(f"{state} {count:,}" for state, count in after.get(label, {}).items()) or "unreadable"
        verdict = "" if same else "  CHANGED"
        deleted = screen.count(run.deletion.deleted.files)
        shown.add_row(screen.text(label), run.outcome.value if run.outcome else "?", deleted, f"{rows}{verdict}")
    screen.block(console, shown)
    left = [path for planted in lake.planted.values() for path in planted if path.exists()]
    sound = before == after and not left and _as_expected(runs)
    console.print(
        screen.text("Every table reads the same rows; every planted orphan is gone.", "bold green")
        if sound
        else screen.text(f"Something is wrong: {len(left)} planted orphans are left.", "bold red")
    )
    return exits.ExitCode.DONE if sound else exits.ExitCode.FAILED


def _as_expected(runs: list[CleanupRun]) -> bool:
    """The damaged table must be refused, and nothing else."""
    return all((run.outcome is Outcome.REFUSED) == run.table.name.endswith("damaged") for run in runs)


def _read_all(lake: DemoLake) -> dict[str, Rows]:
    """Every readable table, by its label."""
    from lakesweep.cli import demo_lake  # noqa: PLC0415 - heavy

    found: dict[str, Rows] = {}
    for label, table in lake.tables():
        try:
            found[label] = demo_lake.count_rows(table)
        except FileNotFoundError:
            continue
    return found


def _title(console: Console, title: str, subtitle: str) -> None:
    console.print()
    console.print(screen.text(f"=== {title}", "bold"))
    if subtitle:
        console.print(screen.text(subtitle, "dim"))
    console.print()
