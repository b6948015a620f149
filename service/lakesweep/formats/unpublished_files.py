"""The little deleting that a commit and a finished sweep need, given from outside.

Formats have no way to delete. What they may ask for is narrow: files of their own making that were never
published, and directories that are empty. Whoever gives them this keeps the gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from lakesweep.model.location import Location


class Tidy(Protocol):
    """Given by the composition root. Never raises for what a store says: leaving something behind is harmless."""

    def within(self, roots: Sequence[Location]) -> Tidy:
        """The same for one table: nothing outside its roots is touched. Before this is asked, nothing at all is."""
        ...

    async def discard(self, paths: Sequence[str]) -> None:
        """Remove files that this process wrote just now and that nothing can refer to."""
        ...

    async def empty_directories(self, root: Location, older_than: datetime) -> Sequence[str]:
        """Directories below `root` that hold no file and were not touched since; object stores have none."""
        ...

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove those directories below `root` that are empty."""
        ...


class LeaveAll:
    """Where no deleting was given: unpublished files stay until they are old enough to be orphans."""

    def within(self, roots: Sequence[Location]) -> Tidy:  # noqa: ARG002
        """Everywhere the same."""
        return self

    async def discard(self, paths: Sequence[str]) -> None:
        """Leave them."""

    async def empty_directories(self, root: Location, older_than: datetime) -> Sequence[str]:  # noqa: ARG002
        """Look for none."""
        return ()

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002
        """Leave them."""
        return 0
