"""Go through the tables that the targets name. One that cannot be found or worked on never keeps the others back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from lakesweep.aio import StopRequest
from lakesweep.cli import exit_codes, screen
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.cli.interrupts import stop_on_interrupt
from lakesweep.model.errors import Refused, SettingsError
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import CleanupRun, ListingMode

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.targets import Work
    from lakesweep.model.table import TableRef
    from lakesweep.ports.run import Progress as Step
    from lakesweep.ports.run import ReportProgress

_THEN = "the next run continues"


class Targets:
    """What the targets name, and the exit codes that come together on the way."""

    def __init__(self, session: Session, names: Sequence[str], *, no_listing: bool = False) -> None:
        if not names and not session.settings.tenants:
            raise SettingsError(
                "nothing to do: give a location as TARGET, or configure tenants and name the file with --config"
            )
        self._session = session
        self._app = session.app
        self._names: Sequence[str | None] = names or [None]
        self._format = session.format
        self._root = session.root
        self._listing = ListingMode.NEVER if no_listing else ListingMode.ALWAYS
        self.codes: list[ExitCode] = []
        self.done: list[CleanupRun] = []
        self._found: list[Work] | None = None

    def again(self) -> None:
        """Forget how the tables' runs ended: they are gone through once more. Targets that name none stay counted."""
        self.codes = [] if self._found else self.codes
        self.done = []

    async def works(self) -> AsyncIterator[Work]:
        """Each table once, however many targets name it. A target that names none is reported and counted, once."""
        if self._found is not None:
            for work in self._found:
                yield work
            return
        found: list[Work] = []
        async for work in self._look():
            found.append(work)
            yield work
        self._found = found

    async def _look(self) -> AsyncIterator[Work]:
        seen: set[TableRef] = set()
        faulty: set[str | None] = set()
        for name in self._names:
            try:
                works = await self._app.resolve(name, format=self._format, root=self._root)
            except Exception as exc:  # noqa: BLE001 - what one target meets must not keep the others back
                screen.complain(exit_codes.sentence(exc))
                self.codes.append(exit_codes.of_error(exc))
                faulty.add(name)
                continue
            for work in works:
                if work.ref not in seen:
                    seen.add(work.ref)
                    yield work
        named = [name for name in self._names if name not in faulty]
        report_empty(self._session, named, seen)

    async def runs(self, *, execute: bool) -> AsyncIterator[CleanupRun]:
        """What became of each table. One whose settings are invalid is reported and counted, and the others go on."""
        async for work in self.works():
            stop = StopRequest()  # of this run alone: a sweep that meets trouble sets it too
            try:
                with _watching(work.ref.label) as report, stop_on_interrupt(stop, _THEN):
                    done = await self._app.run(work, execute=execute, progress=report, stop=stop, listing=self._listing)
            except SettingsError as exc:
                screen.complain(f"{work.ref.label}: {exit_codes.sentence(exc)}")
                self.codes.append(exit_codes.of_error(exc))
                continue
            except Exception as exc:  # noqa: BLE001 - a bug that one table meets must not keep the others back
                done = self._app.broken(work, exc)
            self.codes.append(exit_codes.of_run(done))
            self.done.append(done)
            yield done
            if stop.by_user:
                _report_interrupted(self.done, execute=execute)
                self.codes.append(ExitCode.INTERRUPTED)
                return


class ApprovedGhosts(Targets):
    """The same for ghosts whose plan somebody approved. The names are those of tenants."""

    async def _look(self) -> AsyncIterator[Work]:
        if self._format is not None or self._root is not None or self._listing is ListingMode.NEVER:
            raise SettingsError("--format, --root and --no-listing do not apply to --ghosts")
        settings = self._app.settings
        known = [tenant.id for tenant in settings.tenants]
        found = 0
        for name in known if self._names == [None] else dict.fromkeys(self._names):
            if name not in known:
                from lakesweep.daemon.targets import unknown_tenant  # noqa: PLC0415 - heavy

                raise unknown_tenant(name, known, "with --ghosts a target is a tenant")
            for work in await self._app.ghost_search(name).approved():
                found += 1
                yield work
        if not found:
            raise Refused(
                RefusalCode.GHOST_NOT_APPROVED,
                "no plan of a ghost is approved: `lakesweep ghosts --plan` makes plans, `lakesweep approve RUN "
                "--digest DIGEST` approves one",
            )


def report_empty(session: Session, names: Sequence[str | None], found: Iterable[TableRef]) -> None:
    """A dataset without tables may be new, or its address may be wrong, which silence would hide."""
    for dataset, place in session.app.discovery.empty(names, found).items():
        screen.complain(f"{dataset}: no tables found in {place}")


def _report_interrupted(runs: Sequence[CleanupRun], *, execute: bool) -> None:
    deleted = sum(run.deletion.deleted.files for run in runs)
    freed = sum(run.deletion.deleted.bytes for run in runs)
    expired = sum(len(run.expired_snapshots) for run in runs)
    if not execute:
        screen.complain("interrupted: nothing was changed")
        return
    did = f"{screen.counted(deleted, 'file')} deleted ({screen.size(freed)})"
    did = f"{did}, {screen.counted(expired, 'snapshot')} expired" if expired else did
    last = f"; `lakesweep runs --table '{runs[-1].table.label}'` shows the last one" if runs else ""
    screen.complain(f"interrupted: {did}; nothing else was changed. The same command continues from here{last}")


@contextmanager
def _watching(label: str) -> Iterator[ReportProgress | None]:
    """Yields what a cycle reports its steps to, or None when nobody is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    shown = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False)
    with shown as bar:
        task = bar.add_task(screen.printable(label), total=None)

        def report(step: Step) -> None:
            bar.update(
                task, description=screen.printable(f"{label}: {step.phase}"), completed=step.done, total=step.total
            )

        yield report
