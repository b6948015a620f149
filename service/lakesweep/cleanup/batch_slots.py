"""How many batches of a sweep run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lakesweep.ports.run import Slots


class BatchSlots:
    """Places for the batches of one sweep, inside those that all tables share."""

    def __init__(self, own: int, shared: Slots | None) -> None:
        self._own = asyncio.Semaphore(own)
        self._shared = shared

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[BatchSlot]:
        """A slot, free again at the end of the block unless it was handed over."""
        await self._own.acquire()
        slot = BatchSlot([self._own.release])
        try:
            if self._shared is not None:
                await self._shared.acquire()
                slot.held.append(self._shared.release)
            yield slot
        finally:
            slot.release()


@dataclass(slots=True)
class BatchSlot:
    """One place; given back once, however often it is released."""

    held: list[Callable[[], None]]

    def hand_over(self) -> Callable[[object], None]:
        """From now on a task gives it back when it is done, even if it never began."""
        taken, self.held = BatchSlot(self.held), []
        return lambda _: taken.release()

    def release(self) -> None:
        while self.held:
            self.held.pop()()
