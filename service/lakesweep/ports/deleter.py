"""Deleting objects, and moving them to the trash and back. Separate from storage on purpose: only the sweep deletes,
through a gate, and only the sweep and a restore move.

If the process is killed at any point of a move, an object is in one place or in both, never in none: it is complete at
its target before it is removed from its source. An existing target is never overwritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lakesweep.model.errors import FailureKind
from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.ports.table import TableState


class DeleteStatus(StrEnum):
    """The result for one object."""

    DELETED = "deleted"
    ALREADY_GONE = "already_gone"
    FAILED = "failed"
    SPARED = "spared"
    """Kept on purpose: it is referenced again, or it is not the object that was judged."""
    NOT_SENT = "not_sent"
    """No request was sent: the run ended before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The result for one path, in the given order."""

    path: str
    status: DeleteStatus
    why: str | None = None
    kind: FailureKind = FailureKind.OTHER
    """Of one that FAILED."""
    went: Went = Went.FREED
    """Of one that was DELETED."""
    delete_marker: str | None = None
    """The version id of the delete marker that the store created, if the response named one: removing exactly this
    marker restores the object."""


ANOTHER_OBJECT = "the store has a different object under this name than the one that was planned"


def not_sent(path: str, why: str) -> Deleted:
    """The result for a path without a request."""
    return Deleted(path=path, status=DeleteStatus.NOT_SENT, why=why)


class Conditions(Protocol):
    """What a deleter checks last before each request, also before a retry."""

    @property
    def etags(self) -> Mapping[str, str]:
        """Known etags of the objects to delete, by path. A store that can compare them spares an object with another
        etag (SPARED)."""

    @property
    def written_ms(self) -> Mapping[str, int]:
        """Listed modification times of the objects to delete that have no etag, by path. A store without etags compares
        these and spares an object with another time (SPARED)."""

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        """The paths of the next request that must not be sent, with their results. May take a while."""

    def ended(self) -> str | None:
        """Why nothing more may be sent; called with the request ready. Immediate: it waits for nothing."""


class Deleter(Protocol):
    """Deletes objects by their exact raw path."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """One result per path. A missing object is ALREADY_GONE; an error is FAILED with the store's message; what the
        conditions keep is SPARED or NOT_SENT."""

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove those directories below `root` that are empty, never recursively. Object stores have none."""

    async def aclose(self) -> None:
        """Close connections and threads."""


OpenDeleter = Callable[[TableState], Deleter]
"""Opens a deleter inside one tenant's root, for this table's roots only. The caller closes it."""
TAKEN = "an object is there already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One object, from one exact raw address to another."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A delete marker of our own delete: the store still has the object as an older version."""

    path: str
    version: str


class Mover(Protocol):
    """Moves objects inside one store. One result per move, in the given order; its `path` is the source."""

    async def to_trash(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """DELETED: it is at its target and no longer at its source; in a bucket that keeps versions it was deleted
        there and nothing was copied, as `went` says. A missing source is ALREADY_GONE. What the conditions keep is
        SPARED or NOT_SENT. Anything else is FAILED, and the object is where it was."""

    async def back(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """Move back. SPARED with TAKEN: the target exists, and both objects stay as they are."""

    async def uncover(self, markers: Sequence[Marker], conditions: Conditions | None = None) -> list[Deleted]:
        """Remove exactly these delete markers. DELETED: the object is there again. SPARED with TAKEN: it was there
        already. ALREADY_GONE with a reason: to remove it brings nothing back, so it stays."""

    async def aclose(self) -> None:
        """Close connections and threads."""
