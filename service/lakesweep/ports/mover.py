"""Moving objects to the trash and back. Like deleting, separate from storage on purpose.

If the process is killed at any point, an object is in one place or in both, never in none: it is complete at its target
before it is removed from its source. An existing target is never overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakesweep.ports.deleter import Conditions, Deleted

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
