"""A deleter that moves files to the trash instead. It is behind the same gate as the one that deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakesweep.model.location import Location
from lakesweep.model.trash import RunTrash
from lakesweep.ports.deleter import Conditions, Deleted, Deleter, DeleteStatus
from lakesweep.ports.mover import TAKEN, Move, Mover


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
    if answer.fate is DeleteStatus.SPARED and answer.why == TAKEN:
        return replace(answer, fate=DeleteStatus.FAILED, why=f"another object is at {move.target} in the trash")
    return answer
