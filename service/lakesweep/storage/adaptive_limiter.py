"""Limit requests to a store that may throttle: back off fast, grow slowly. Pure, except for the waiting in `Gate`.

A store that throttles rejects everything in flight at that moment. That is one signal, not one for each request: only a
request that began after the last step down can cause the next. Then all workers wait, not just the one that was
throttled, so that they do not hit the store one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakesweep.retry import Backoff, Sleep

_GROW_AFTER = 5
"""Successful requests before the next step up."""
_PAGE_STEP = 100
SMALLEST_PAGE = 25
LONGEST_PAUSE_SECONDS = 5.0
"""The longest wait of a deleting worker: others wait for what it holds."""


class RequestLimits:
    """Keys per request and requests in flight, between a floor and the configured top."""

    def __init__(self, *, page_size: int, concurrency: int) -> None:
        self._top_page = page_size
        self._top_concurrency = concurrency
        self.page_size = page_size
        self.concurrency = concurrency
        self._calm = 0

    def throttled(self, in_flight: int | None = None) -> None:
        """The store throttled with `in_flight` requests under way (by default all that were allowed): halve both
        numbers."""
        self._calm = 0
        self.page_size = max(min(SMALLEST_PAGE, self._top_page), self.page_size // 2)
        self.concurrency = max(1, min(self.concurrency, in_flight or self.concurrency) // 2)

    def succeeded(self) -> None:
        """One more successful request; after a few of them, one step up."""
        self._calm += 1
        if self._calm >= _GROW_AFTER:
            self._calm = 0
            self.page_size = min(self._top_page, self.page_size + _PAGE_STEP)
            self.concurrency = min(self._top_concurrency, self.concurrency + 1)


class Gate:
    """Admits as many requests as the limits allow at the moment. Workers that share a gate share its limits."""

    def __init__(self, limits: RequestLimits, sleep: Sleep = asyncio.sleep) -> None:
        self.limits = limits
        self._backoff = Backoff(1, sleep, longest=LONGEST_PAUSE_SECONDS)
        self._shut = False
        self._troubles = 0
        """Steps down since the last successful request."""
        self._steps_down = 0
        self._inside = 0
        self._most_inside = 0
        """When the last step down was."""
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[int]:
        """Wait for a slot and hold it. Yields the number of steps down so far, to be passed on with the outcome."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut and self._inside < self.limits.concurrency)
            self._inside += 1
            self._most_inside = max(self._most_inside, self._inside)
        try:
            yield self._steps_down
        finally:
            async with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def record_success(self, began: int) -> None:
        self._troubles = 0
        if began == self._steps_down:
            self.limits.succeeded()

    async def throttled(self, began: int) -> None:
        """The store throttled: one step down, and nothing is admitted for a while."""
        if began != self._steps_down:
            return
        self.limits.throttled(self._most_inside)
        self._steps_down += 1
        self._troubles += 1
        self._most_inside = 0
        self._shut = True
        try:
            await self._backoff.pause(self._troubles)
        finally:
            async with self._changed:
                self._shut = False
                self._changed.notify_all()


PAGE_KEYS = 1000
"""The most keys in one DeleteObjects request."""


def delete_gate(concurrency: int, sleep: Sleep = asyncio.sleep) -> Gate:
    """A gate for deleters that share their limits, with at most this many requests in flight."""
    return Gate(RequestLimits(page_size=PAGE_KEYS, concurrency=concurrency), sleep)
