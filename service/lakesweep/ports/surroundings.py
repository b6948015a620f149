"""What other tables and people have to do with one table. Asked anew each time: planning may take hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from lakesweep.model.location import Location
from lakesweep.model.run import Refusal
from lakesweep.model.table import TableRef
from lakesweep.ports.table import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryIdentity:
    """Which directory a local place really is."""

    inode: tuple[int, int]
    """With its device."""
    path: str
    """Its file system and its path there, with a slash at the end: it begins with that of every place around it."""
    mounted: tuple[str, ...] = ()
    """The same of what is mounted inside it."""

    def overlaps(self, other: DirectoryIdentity) -> bool:
        """Is one of the two the other, or inside it?"""
        theirs = (other.path, *other.mounted)
        return self.inode == other.inode or any(
            _nested(mine, one) for mine in (self.path, *self.mounted) for one in theirs
        )

    @property
    def repeats_itself(self) -> bool:
        """Is a part of it mounted inside it once more?"""
        return any(_nested(self.path, one) for one in self.mounted)


def _nested(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Where the other tables of a tenant keep their files."""

    places: Mapping[TableRef, tuple[Location, ...]] = field(default_factory=dict)
    problem: str | None = None
    """Why the places are not known, if they are not."""


class Surroundings(Protocol):
    """One table's tenant, as the service sees it now."""

    async def neighbours(self) -> Neighbours:
        """The places of all tables around, this one's included."""
        ...

    async def shared_files(self, state: TableState) -> Mapping[str, Sequence[str]]:
        """Files in this table's places that other tables use, by the labels of these. They stay, whatever this table
        says of them."""
        ...

    async def identify(self, places: Iterable[Location]) -> Mapping[Location, DirectoryIdentity]:
        """Which local places are one directory under several names. Places of other stores are left out."""
        ...

    async def check_clock(self, allowed: timedelta) -> Refusal | None:
        """Refused while this machine's clock is further off than `allowed`."""
        ...

    async def check_not_held(self) -> None:
        """Raise Refused while a person or a guard holds the table. Asked before every request of a sweep."""
        ...


class Alone:
    """A table without neighbours, which nobody holds, under a clock that nobody doubts."""

    async def neighbours(self) -> Neighbours:
        """None."""
        return Neighbours()

    async def shared_files(self, state: TableState) -> Mapping[str, Sequence[str]]:
        """None."""
        del state
        return {}

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
