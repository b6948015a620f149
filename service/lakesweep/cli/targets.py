"""Go through the tables that the targets name. One that cannot be found or worked on never keeps the others back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from lakesweep.cli import exit_codes, progress, screen
from lakesweep.cli.exit_codes import ExitCode
from lakesweep.model.errors import SettingsError
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName

if TYPE_CHECKING:
    from lakesweep.cli.session import Session
    from lakesweep.daemon.targets import Work


class Targets:
    """What the targets name, and the exit codes that come together on the way."""

    def __init__(
        self, session: Session, names: Sequence[str], *, table_format: FormatName | None, root: str | None
    ) -> None:
        if not names and not session.settings.tenants:
            raise SettingsError(
                "nothing to do: give a location as TARGET, or configure tenants and name the file with --config"
            )
        self._app = session.app
        self._names: Sequence[str | None] = names or [None]
        self._format = table_format
        self._root = root
        self.codes: list[ExitCode] = []

    async def works(self) -> AsyncIterator[Work]:
        """Each table once, however many targets name it. A target that names none is told and counted."""
        seen = set()
        for name in self._names:
            try:
                works = await self._app.resolve(name, format=self._format, root=self._root)
            except Exception as exc:  # noqa: BLE001 - what one target meets must not keep the others back
                screen.complain(exit_codes.sentence(exc))
                self.codes.append(exit_codes.of_error(exc))
                continue
            for work in works:
                if work.ref not in seen:
                    seen.add(work.ref)
                    yield work

    async def runs(self, *, execute: bool) -> AsyncIterator[CleanupRun]:
        """What became of each table. One whose settings are at fault is told and counted, and the others go on."""
        async for work in self.works():
            try:
                with progress.watching(work.ref.label) as report:
                    done = await self._app.run(work, execute=execute, progress=report)
            except SettingsError as exc:
                screen.complain(f"{work.ref.label}: {exit_codes.sentence(exc)}")
                self.codes.append(exit_codes.of_error(exc))
                continue
            except Exception as exc:  # noqa: BLE001 - a bug that one table meets must not keep the others back
                done = self._app.broken(work, exc)
            self.codes.append(exit_codes.of_run(done))
            yield done
