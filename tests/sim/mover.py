"""The Mover port on the simulated world, as an object store moves: a copy, then a delete of exactly what was copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.sim.ports import Process, SimDeleter
from tests.sim.world import Fault, Stored

from lakesweep.model.files import Went
from lakesweep.ports.deleter import ANOTHER_OBJECT, TAKEN, Conditions, Deleted, DeleteStatus, Marker, Move, not_sent


class SimMover:
    """Between any two of its steps the adversary has its say."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    async def to_trash(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """A target with the same bytes is a move that was begun before."""
        sources = [move.source for move in moves]
        self._world.asked.update(sources)
        answers = dict(await conditions.withheld(sources)) if conditions else {}
        whole: dict[str, str] = {}
        for move in moves:
            if move.source in answers:
                continue
            if why := conditions and conditions.ended():
                answers[move.source] = not_sent(move.source, why)
                continue
            judged = conditions.etags.get(move.source) if conditions else None
            copied = await self._copied(move, judged, finish=True)
            if isinstance(copied, Stored):
                whole[move.source] = copied.etag
            else:
                answers[move.source] = copied
        if whole:
            gone = await SimDeleter(self._process).delete(list(whole), _Compared(conditions, whole))
            answers |= {one.path: _moved(one) for one in gone}
        return [answers[path] for path in sources]

    async def back(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """Never over anything."""
        return [await self._one_back(move) for move in moves]

    async def uncover(self, markers: Sequence[Marker], conditions: Conditions | None = None) -> list[Deleted]:
        """There are no versions here."""
        return [
            Deleted(path=one.path, status=DeleteStatus.FAILED, why="this store keeps no versions") for one in markers
        ]

    async def aclose(self) -> None:
        """Nothing to give back."""

    async def _one_back(self, move: Move) -> Deleted:
        copied = await self._copied(move, None, finish=False)
        if not isinstance(copied, Stored):
            return copied
        try:
            call = await self._process.enter("storage", "delete", move.source)
            self._world.remove(move.source)
            await self._process.leave(call)
        except Fault as fault:
            return Deleted(path=move.source, status=DeleteStatus.FAILED, why=fault.kind)
        return Deleted(path=move.source, status=DeleteStatus.DELETED)

    async def _copied(self, move: Move, judged: str | None, *, finish: bool) -> Stored | Deleted:
        """What is at the source, once it is at the target too; or the answer if it is not."""
        world, path = self._world, move.source
        try:
            call = await self._process.enter("storage", "copy", move.target)
            held, taken = world.objects.get(path), world.objects.get(move.target)
            if held is None:
                return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
            if judged is not None and held.etag != judged:
                return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
            if taken is not None and not (finish and taken.data == held.data):
                return Deleted(path=path, status=DeleteStatus.SPARED, why=TAKEN)
            if taken is None:
                world.put(move.target, held.data, self._process.name)
            await self._process.leave(call, len(held.data), "bytes")
        except Fault as fault:
            return Deleted(path=path, status=DeleteStatus.FAILED, why=fault.kind)
        return held


def _moved(answer: Deleted) -> Deleted:
    return replace(answer, went=Went.TRASH) if answer.status is DeleteStatus.DELETED else answer


@dataclass(frozen=True, slots=True)
class _Compared:
    """The conditions of a request, and that each object is still the one that was copied."""

    inner: Conditions | None
    etags: Mapping[str, str]
    written_ms: Mapping[str, int] = field(default_factory=dict)

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        return await self.inner.withheld(paths) if self.inner else {}

    def ended(self) -> str | None:
        return self.inner.ended() if self.inner else None
