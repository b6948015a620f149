"""Deleting, separate from storage on purpose. Only `cleanup.sweep` uses it, through a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    fate: DeleteStatus
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
    return Deleted(path=path, fate=DeleteStatus.NOT_SENT, why=why)


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


class Deleters(Protocol):
    """Opens deleters inside one tenant's root."""

    def open(self, state: TableState) -> Deleter:
        """A deleter for this table's roots only. The caller closes it."""
