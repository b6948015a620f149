"""The power to delete, kept apart from storage on purpose. Only `cleanup.sweep` uses it, through a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lakesweep.model.errors import FailureKind
from lakesweep.model.location import Location
from lakesweep.ports.table import TableState


class DeleteStatus(StrEnum):
    """What became of one object."""

    DELETED = "deleted"
    ALREADY_GONE = "already_gone"
    FAILED = "failed"
    SPARED = "spared"
    """Kept on purpose: it is referenced again, or it is another object than the one that was judged."""
    NOT_SENT = "not_sent"
    """Never asked for: the run ended before its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The fate of one path, in the order asked."""

    path: str
    fate: DeleteStatus
    why: str | None = None
    kind: FailureKind = FailureKind.OTHER
    """Of one that FAILED."""


ANOTHER_OBJECT = "the store has a different object under this name than the one that was planned"


def not_sent(path: str, why: str) -> Deleted:
    """The answer for a path that was never asked for."""
    return Deleted(path=path, fate=DeleteStatus.NOT_SENT, why=why)


class Conditions(Protocol):
    """What a deleter asks as the last thing before each request, also when it sends one again."""

    @property
    def etags(self) -> Mapping[str, str]:
        """Of the objects that may go, by path, where they are known. A store that can compares them: an object with
        another one is SPARED."""
        ...

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        """Those of the next request that must not be sent, with the answer that they get. May take a while."""
        ...

    def ended(self) -> str | None:
        """Why nothing may be sent any more, asked with the request in hand. Takes no time and waits for nothing."""
        ...


class Deleter(Protocol):
    """Deletes objects by their exact raw path."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """One answer per path. A missing object is ALREADY_GONE; an error is FAILED with what the store said; what the
        conditions keep is SPARED or NOT_SENT."""
        ...

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove those directories below `root` that are empty, never recursively. Object stores have none."""
        ...

    async def aclose(self) -> None:
        """Give back connections and threads."""
        ...


class Deleters(Protocol):
    """The power to delete in one tenant's root."""

    def open(self, state: TableState) -> Deleter:
        """A deleter that deletes in this table's roots only. Whoever opens it closes it."""
        ...
