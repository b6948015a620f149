"""The power to delete, kept apart on purpose. Only `cleanup.sweep` calls it; storage implements it.

Nothing is deleted that is not strictly inside the tenant's root and inside one of the table's roots. The
check is made here, by `GatedDeleter`, on the exact raw path, whatever the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lakesweep.model.errors import Refused
from lakesweep.model.location import Location


class Fate(StrEnum):
    """What became of one object."""

    DELETED = "deleted"
    ALREADY_GONE = "already_gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The fate of one path, in the order asked."""

    path: str
    fate: Fate
    why: str | None = None


class Deleter(Protocol):
    """Deletes objects by their exact raw path."""

    async def delete(self, paths: Sequence[str]) -> list[Deleted]:
        """One answer per path. A missing object is ALREADY_GONE; an error is FAILED with what the store said."""
        ...

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove those directories below `root` that are empty, never recursively. Object stores have none."""
        ...

    async def aclose(self) -> None:
        """Give back connections and threads."""
        ...


class GatedDeleter:
    """The one gate: refuses the whole batch if a single path is outside, since then the plan itself is wrong."""

    def __init__(
        self,
        inner: Deleter,
        *,
        tenant_root: Location,
        table_roots: Sequence[Location],
        count: Callable[[int], None] | None = None,
    ) -> None:
        self._inner = inner
        self._count = count
        self._tenant_root = tenant_root
        self._table_roots = tuple(table_roots)

    async def delete(self, paths: Sequence[str]) -> list[Deleted]:
        """Check every path, then delete."""
        for path in paths:
            self._check(path)
        if self._count is not None:
            self._count(len(paths))
        return await self._inner.delete(paths)

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Check every directory, then remove the empty ones."""
        for directory in directories:
            self._check(directory)
        return await self._inner.remove_empty_directories(root, directories)

    async def aclose(self) -> None:
        """Close the wrapped deleter."""
        await self._inner.aclose()

    def _check(self, path: str) -> None:
        location = Location.parse(path)
        if location.raw != path:
            raise Refused("outside_root", f"{path} is not a plain listed address; nothing of this batch was deleted")
        if not self._tenant_root.contains(location):
            raise Refused(
                "outside_root",
                f"{path} is outside the tenant's root {self._tenant_root}; nothing of this batch was deleted",
            )
        if not any(root.contains(location) for root in self._table_roots):
            roots = ", ".join(root.raw for root in self._table_roots)
            raise Refused(
                "outside_root", f"{path} is outside the table's roots {roots}; nothing of this batch was deleted"
            )
