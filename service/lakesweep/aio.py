"""End work that changes nothing the moment somebody asks for it, and finish what must not be left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from lakesweep.model.errors import Interrupted

STOPPED = "stopped from outside; the next cycle goes on"
T = TypeVar("T")


class StopRequest(asyncio.Event):
    """An event that also knows why it was set, where that is not somebody's wish."""

    why = STOPPED

    def end(self, why: str) -> None:
        """Ask the run to stop, and have it give this reason."""
        self.why = why
        self.set()


def interruption(stop: asyncio.Event) -> Interrupted:
    """What a run ends with that was asked to stop."""
    return Interrupted(stop.why if isinstance(stop, StopRequest) else STOPPED)


async def cancel_on(stop: asyncio.Event, work: Coroutine[Any, Any, T], name: str) -> T:
    """The result of the work, or Interrupted as soon as `stop` is set; the work is over when this returns."""
    working = asyncio.create_task(work, name=name)
    stopped = asyncio.create_task(stop.wait(), name=f"stop of {name}")
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise interruption(stop)
        return await working
    finally:
        working.cancel()
        stopped.cancel()
        await asyncio.wait((working, stopped))
        if not working.cancelled():
            working.exception()  # looked at: whoever stopped the work does not care how it ended


async def finish_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even while being cancelled; the cancellation goes on afterwards."""
    working = asyncio.create_task(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # looked at: the cancellation is what the caller hears
        raise
