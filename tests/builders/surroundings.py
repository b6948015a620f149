"""A table that nothing surrounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from lakesweep.model.location import Location
from lakesweep.model.run import Refusal
from lakesweep.ports.surroundings import DirectoryIdentity, Neighbours
from lakesweep.ports.table import TableState


class Alone:
    """A table without neighbours, which nobody holds, under a clock that nobody doubts."""

    async def neighbours(self) -> Neighbours:
        """None."""
        return Neighbours()

    async def shared_files(self, state: TableState) -> Mapping[str, Sequence[str]]:
        """None."""
        del state
        return {}

    async def check_file_users(self, state: TableState) -> Refusal | None:
        """Nobody uses its files."""
        del state
        return None

    async def identify(self, places: Iterable[Location]) -> Mapping[Location, DirectoryIdentity]:
        """Nobody looks at the disk."""
        del places
        return {}

    async def check_clock(self, allowed: timedelta) -> Refusal | None:
        """Believed."""
        del allowed
        return None

    async def check_not_held(self) -> None:
        """Nobody holds it."""
