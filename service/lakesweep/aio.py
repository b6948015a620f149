"""Run work concurrently, stop work that changes nothing as soon as that is requested, and finish work that must not be
left half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from lakesweep.model.errors import Interrupted

STOPPED = "stopped; the next cycle continues"
CONCURRENT_READS = 16
"""Concurrent small reads for one table."""
T = TypeVar("T")
R = TypeVar("R")

TENANT: ContextVar[str] = ContextVar("tenant", default="")
"""The tenant that this task works for, empty for the service itself. Threads that it calls inherit it."""


@contextmanager
def working_for(tenant: str) -> Iterator[None]:
    """Threads and processes that this task and its children use count for this tenant."""
    token = TENANT.set(tenant)
    try:
        yield
    finally:
        TENANT.reset(token)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup whose first failure stops the others and is raised as it is: not as a group, and with its own
    cause."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        first = next(leaves(failures))
    else:
        return
    # Outside of the handler: inside it, the group would become the context of the failure.
    try:
        raise first
    finally:
        del first  # a traceback must not reference the frame that references it


async def together(work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
    """Run everything concurrently, results in order. The first failure stops the rest and is raised."""
    async with task_group() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


async def gather_bounded(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int = CONCURRENT_READS
) -> list[R]:
    """`work` on every item, at most `limit` at a time, results in order. The first failure stops the rest."""
    items = list(items)
    if not items:
        return []
    slots = asyncio.Semaphore(limit)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    return await together(one(item) for item in items)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group and of the groups inside it; a single error yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


class StopRequest(asyncio.Event):
    """An event that also has the reason why it was set, and whether the person who started the work wanted it."""

    why = STOPPED
    by_user = False
    """Ctrl-C or its like: then the work after this one is not started either."""

    def end(self, why: str, *, by_user: bool = False) -> None:
        self.why = why
        self.by_user = self.by_user or by_user
        self.set()


def interruption(stop: asyncio.Event) -> Interrupted:
    return Interrupted(stop.why if isinstance(stop, StopRequest) else STOPPED)


async def cancel_on(stop: asyncio.Event, work: Coroutine[Any, Any, T], name: str) -> T:
    """The result of the work, or Interrupted as soon as `stop` is set. The work has ended when this returns."""
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
            working.exception()  # retrieved, so that asyncio does not report it: the work was stopped


async def finish_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even while being cancelled; the cancellation goes on afterwards."""
    working = asyncio.create_task(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # retrieved, so that asyncio does not report it: the cancellation is raised instead
        raise
