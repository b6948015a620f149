"""A table that nothing surrounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import timedelta

from lakesweep.model.location import Location
from lakesweep.model.run import Refusal
from lakesweep.model.store_rules import UNKNOWN, LeftoverPage, StoreRules, not_counted
from lakesweep.ports.surroundings import DirectoryIdentity, Neighbours
from lakesweep.ports.table import TableState


class Alone:
    """A table without neighbours, which nobody holds, under a clock that nobody doubts."""

    async def neighbours(self) -> Neighbours:
        """None."""
        return Neighbours()

    async def shared_files(self, state: TableState, *, own_later: bool = False) -> Mapping[str, Sequence[str]]:
        """None."""
        del state, own_later
        return {}

    async def read_own(self) -> None:
        """It uses nothing of others."""

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


class NoStoreRules:
    """No rules are read: everything is unknown."""

    async def rules(self, place: Location) -> StoreRules:  # the port's
        """Unknown."""
        return UNKNOWN

    async def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:  # the port's
        """Nothing is counted."""
        for page in not_counted("the store is not queried"):
            yield page

    async def aclose(self) -> None:
        """Nothing to close."""
