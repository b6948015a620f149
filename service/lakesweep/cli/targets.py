"""Go through the tables that the targets name. One that cannot be found or worked on never keeps the others back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from lakesweep.cli import exits, screen
from lakesweep.cli.exits import ExitCode
from lakesweep.model.errors import LakesweepError, SettingsError
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
                "nothing to work on: give a location as TARGET, or configure tenants and name the file with --config"
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
            except LakesweepError as exc:
                screen.complain(exits.sentence(exc))
                self.codes.append(exits.of_error(exc))
                continue
            for work in works:
                if work.ref not in seen:
                    seen.add(work.ref)
                    yield work
