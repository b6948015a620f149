"""What a run must know about other tables, and about holds. Always read again: planning may take hours."""

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
    """The real directory behind a local place."""

    inode: tuple[int, int]
    """Inode and device."""
    path: str
    """Its file system and its path there, with a trailing slash: it starts with that of every place around it."""
    mounted: tuple[str, ...] = ()
    """The same for everything that is mounted inside it."""

    def overlaps(self, other: DirectoryIdentity) -> bool:
        """Are both the same directory, or is one inside the other?"""
        theirs = (other.path, *other.mounted)
        return self.inode == other.inode or any(
            _nested(mine, one) for mine in (self.path, *self.mounted) for one in theirs
        )

    @property
    def repeats_itself(self) -> bool:
        """Is a part of it mounted again inside it?"""
        return any(_nested(self.path, one) for one in self.mounted)


def _nested(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Where the other tables of a tenant keep their files."""

    places: Mapping[TableRef, tuple[Location, ...]] = field(default_factory=dict)
    problem: str | None = None
    """Why the places are unknown, if they are."""


class Surroundings(Protocol):
    """One table's tenant, as the service sees it now."""

    async def neighbours(self) -> Neighbours:
        """The places of all tables of the tenant, including this one."""

    async def shared_files(self, state: TableState, *, own_later: bool = False) -> Mapping[str, Sequence[str]]:
        """Files in this table's places that other tables use, by the labels of those tables. They are kept, whatever
        this table's metadata says. What this one uses of others is noted, too. With `own_later` that may be left to
        `read_own`, so that no manifest is read twice."""

    async def read_own(self) -> None:
        """Note what this table uses of others, if `shared_files` left that for later: once an engine has read it."""

    async def check_file_users(self, state: TableState) -> Refusal | None:
        """Refused while a table that is known to use files of this one cannot be read. Call it after `shared_files`."""

    async def identify(self, places: Iterable[Location]) -> Mapping[Location, DirectoryIdentity]:
        """Which local places are one directory under several names. Places of other stores are left out."""

    async def check_clock(self, allowed: timedelta) -> Refusal | None:
        """A refusal while this machine's clock is off by more than `allowed`; None if it is right."""

    async def check_not_held(self) -> None:
        """Raise Refused while a person or a guard holds the table. Called before every request of a sweep."""
