"""The gate in front of every deleter: the last check of each path before it is deleted.

Nothing is deleted that is not strictly inside the tenant's root and inside one of the table's roots. The
check is made here, by `GatedDeleter`, on the exact raw path, whatever the plan says. `TrashDeleter` moves files to the
trash instead of deleting them; it stands behind the same gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.trash import RunTrash
from lakesweep.ports.deleter import TAKEN, Conditions, Deleted, Deleter, DeleteStatus, Move, Mover


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
        self._plainly = _PlainAddresses(tenant_root, self._table_roots)

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        for path in self._plainly.not_inside(paths):
            self._check(path)
        if self._count is not None:
            self._count(len(paths))
        return await self._inner.delete(paths, conditions)

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        for directory in directories:
            self._check(directory)
        return await self._inner.remove_empty_directories(root, directories)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _check(self, path: str) -> None:
        location = Location.parse(path)
        if location.raw != path:
            raise Refused(
                RefusalCode.OUTSIDE_ROOT, f"{path} is not a normalised address; nothing of this batch was deleted"
            )
        if not self._tenant_root.contains(location):
            raise Refused(
                RefusalCode.OUTSIDE_ROOT,
                f"{path} is outside the tenant's root {self._tenant_root}; nothing of this batch was deleted",
            )
        if not any(root.contains(location) for root in self._table_roots):
            roots = ", ".join(root.raw for root in self._table_roots)
            raise Refused(
                RefusalCode.OUTSIDE_ROOT,
                f"{path} is outside the table's roots {roots}; nothing of this batch was deleted",
            )


class _PlainAddresses:
    """The same rule for addresses that are spelled like the roots: text alone shows that they are inside.

    What begins with a root's own spelling is parsed into the same store and spelled alike, and it can have a dot
    segment only behind a slash. Whatever is not so plain is left to the rule itself.
    """

    def __init__(self, tenant_root: Location, table_roots: Sequence[Location]) -> None:
        roots = [root.as_directory() for root in (tenant_root, *table_roots)]
        self._tenant, *tables = [root.raw for root in roots]
        # A root that is not normalised is spelled in a way that proves nothing: then no path is plain.
        self._tables = tuple(tables) if all(Location.parse(root.raw) == root for root in roots) else ()
        self._roots = {self._tenant, *tables}

    def not_inside(self, paths: Sequence[str]) -> list[str]:
        """Those that have to be looked at more closely, in order."""
        tenant, tables, roots = self._tenant, self._tables, self._roots
        return [
            path
            for path in paths
            if not (path.startswith(tenant) and path.startswith(tables) and "/." not in path and path not in roots)
        ]


class TrashDeleter:
    """Moves what it should delete. Directories that became empty are removed: there is nothing to keep of them."""

    def __init__(self, mover: Mover, directories: Deleter, trash: RunTrash) -> None:
        self._mover = mover
        self._directories = directories
        self._trash = trash

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        moves = [Move(source=path, target=self._trash.address(path)) for path in paths]
        answers = await self._mover.to_trash(moves, conditions)
        return [_result(answer, move) for answer, move in zip(answers, moves, strict=True)]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        return await self._directories.remove_empty_directories(root, directories)

    async def aclose(self) -> None:
        try:
            await self._mover.aclose()
        finally:
            await self._directories.aclose()


def _result(answer: Deleted, move: Move) -> Deleted:
    """Another object at our own address in the trash means that somebody else writes there: a person must look."""
    if answer.status is DeleteStatus.SPARED and answer.why == TAKEN:
        return replace(answer, status=DeleteStatus.FAILED, why=f"another object is at {move.target} in the trash")
    return answer
