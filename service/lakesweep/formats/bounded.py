"""Ask a store for many things at once, but not for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

CONCURRENT_READS = 16
"""Small reads in flight for one table."""


async def gather_bounded(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, limit: int = CONCURRENT_READS
) -> list[R]:
    """`work` on every item, at most `limit` at a time, results in order. The first error stops the rest."""
    slots = asyncio.Semaphore(limit)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    tasks: Sequence[asyncio.Task[R]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
