"""The demo's way through the product: build a lake, plan it, explain, clean it, take a run back, and read it again.

It does what a person would do with the commands, and fails when a reader has lost a row.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from lakesweep.cli import exit_codes, lists, render, screen, summary
from lakesweep.cli.demo import lake, show
from lakesweep.cli.demo.lake import DemoLake
from lakesweep.cli.demo.tables import Rows
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.audit_factory import this_user
from lakesweep.engines import registry
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.settings.observability import LoggingSettings
from lakesweep.settings.schema import Settings
from lakesweep.telemetry import logs

_SHOWN_IN_FULL = ("acme/shop/orders", "initech/web/visits", "initech/raw/clicks")
"""One table of each format; what the others would show is much the same."""
_FILES_SHOWN = 2
_LARGEST = "initech/raw/clicks"
_UNDONE = "initech/raw/clicks"
"""Its files go to the trash, and its run is taken back."""
_SPARK = {
    "master": "local[2]",
    # A JVM that lives for seconds should not spend them on compiling itself well.
    "conf": {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
}


def build(directory: Path) -> exit_codes.ExitCode:
    built = _build(screen.output(), directory)
    lake.leave_a_ghost(directory / "lake")
    (directory / "state").mkdir(parents=True, exist_ok=True)
    asyncio.run(lake.make_up_weeks(directory / "state", built.tables))
    return exit_codes.ExitCode.DONE


def go(directory: Path, *, kept: bool = False) -> exit_codes.ExitCode:
    """All of it, below a directory. The exit code says whether what should be there is there."""
    logs.configure(LoggingSettings(), at_least=logging.ERROR)
    console = screen.output()
    built = _build(console, directory)
    sound = asyncio.run(_Tour(console, built, directory).go())
    if kept:
        screen.line(console, f"The lake stays in {directory}/lake, the state in {directory}/state.")
    return exit_codes.ExitCode.DONE if sound else exit_codes.ExitCode.FAILED


def _build(console: Console, directory: Path) -> DemoLake:
    show.title(console, "1. A small lake", f"Three tenants and three formats, in {directory}")
    built = lake.build(directory / "lake")
    show.lake(console, built)
    return built


class _Tour:
    def __init__(self, console: Console, built: DemoLake, directory: Path) -> None:
        self._console = console
        self._lake = built
        self._directory = directory
        self._no_spark = registry.why_no_java()

    async def go(self) -> bool:
        """True when every check holds."""
        before, size_before = self._lake.rows(), self._lake.size()
        async with App.open(self._settings("inprocess" if self._no_spark else "auto")) as app:
            planned = await self._plan(app)
            engines_agree = await self._compare_engines(planned[_LARGEST])
            await self._explain(app)
            done = await self._clean(app)
        taken_back = await self._take_back(done, before[_UNDONE])
        sound = show.afterwards(self._console, self._lake, before, size_before, done)
        return sound and engines_agree and taken_back

    async def _plan(self, app: App) -> dict[str, CleanupRun]:
        show.title(self._console, "2. lakesweep plan", "What would be deleted, what stays and why. Nothing is changed.")
        works = {work.ref.label: work for work in await app.resolve(None)}
        runs = {}
        for label in (*(label for label in works if label not in _SHOWN_IN_FULL), *_SHOWN_IN_FULL):
            with _quiet(self._directory / "spark.log"):
                runs[label] = await app.plan(works[label])
            if label in _SHOWN_IN_FULL:
                first = [row async for batch in app.candidates(runs[label]) for row in batch][:_FILES_SHOWN]
                show.command(self._console, f"lakesweep plan {label} --files {_FILES_SHOWN}")
                render.show_plan(self._console, runs[label], first)
                self._console.print()
        summary.show_sum(self._console, list(runs.values()))
        return runs

    async def _compare_engines(self, planned: CleanupRun) -> bool:
        """The largest table once more inside this process: another engine, the same plan."""
        show.title(self._console, "3. Two engines, one plan", "Large tables are planned on Spark, others in-process.")
        async with App.open(self._settings("inprocess")) as app:
            (work,) = await app.resolve(planned.table.label)
            return show.engines(self._console, await app.plan(work), planned, self._no_spark)

    async def _explain(self, app: App) -> None:
        show.title(self._console, "4. lakesweep explain", "Files that look like garbage, and why they stay.")
        for path in (path for table in self._lake.tables for path in table.curious):
            lists.show_explanation(self._console, await app.explain(str(path)))
            self._console.print()

    async def _clean(self, app: App) -> list[CleanupRun]:
        show.title(self._console, "5. lakesweep run --execute", "Expire, then delete what nothing references.")
        done = []
        for work in await app.resolve(None):
            with _quiet(self._directory / "spark.log"):
                done.append(await app.run(work, execute=True))
        show.cleaned(self._console, done)
        return done

    async def _take_back(self, done: list[CleanupRun], before: Rows) -> bool:
        """The run of one table is undone, every state of it is read again, and it is cleaned once more."""
        console, (run,) = self._console, [run for run in done if run.table.label == _UNDONE]
        show.title(console, "6. lakesweep restore RUN", f'{_UNDONE} has deletion = "trash": take its run back.')
        async with App.open(self._settings("inprocess")) as app:
            undone = await app.restoring(run.id, (), this_user()).execute(new_run_id())
            sound = show.taken_back(console, self._lake, _UNDONE, undone.result, before)
            await app.state.clear_hold(_UNDONE)
            (work,) = await app.resolve(_UNDONE)
            again = await app.run(work, execute=True)
        return sound and again.outcome is Outcome.DONE

    def _settings(self, engine: str) -> Settings:
        described: dict[str, Any] = self._lake.settings
        tenant, dataset, _ = _UNDONE.split("/")
        for one in (one for owner in described["tenants"] if owner["id"] == tenant for one in owner["datasets"]):
            if one["id"] == dataset:
                one["orphan_cleanup"] = {**one.get("orphan_cleanup", {}), "deletion": "trash"}
        return Settings.model_validate(
            {
                **described,
                "engine": {**described["engine"], "kind": engine, "spark": _SPARK},
                "service": {"data_dir": self._directory / "state"},
            }
        )


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Spark starts a JVM that writes to this process's terminal as it likes: let it write to a file instead."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    terminal = {number: os.dup(number) for number in (1, 2)}
    with log.open("ab") as file:
        for number in terminal:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, shown in terminal.items():
            os.dup2(shown, number)
            os.close(shown)
