"""How much to ask of a store that may throttle: shrink fast, grow slowly. Pure, but for the waiting in `Gate`.

A store that throttles answers so to everything that is in flight at that moment. That is one piece of news, not one
for each request: only a request that began after the last step down can cause the next. And then everybody waits, not
just who was told, so that a store in trouble is not asked by one worker after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakesweep.retry import Backoff, Sleep

_GROW_AFTER = 5
"""Calm requests before the next step up."""
_PAGE_STEP = 100
SMALLEST_PAGE = 25
LONGEST_PAUSE_SECONDS = 5.0
"""Of a worker that deletes: others wait for what it holds."""


class Pace:
    """Keys per request and requests in flight, between a floor and the configured top."""

    def __init__(self, *, page_size: int, concurrency: int) -> None:
        self._top_page = page_size
        self._top_concurrency = concurrency
        self.page_size = page_size
        self.concurrency = concurrency
        self._calm = 0

    def throttled(self, in_flight: int | None = None) -> None:
        """The store asked for less than it had, `in_flight` requests (by default all that were allowed): halve both."""
        self._calm = 0
        self.page_size = max(min(SMALLEST_PAGE, self._top_page), self.page_size // 2)
        self.concurrency = max(1, min(self.concurrency, in_flight or self.concurrency) // 2)

    def succeeded(self) -> None:
        """One more calm request; after a few of them, one step up."""
        self._calm += 1
        if self._calm >= _GROW_AFTER:
            self._calm = 0
            self.page_size = min(self._top_page, self.page_size + _PAGE_STEP)
            self.concurrency = min(self._top_concurrency, self.concurrency + 1)


class Gate:
    """Lets as many in as the pace allows at that moment. Whoever shares a gate shares the pace and its troubles."""

    def __init__(self, pace: Pace, sleep: Sleep = asyncio.sleep) -> None:
        self.pace = pace
        self._backoff = Backoff(1, sleep, longest=LONGEST_PAUSE_SECONDS)
        self._shut = False
        self._troubles = 0
        """Steps down since the last calm request."""
        self._steps_down = 0
        self._inside = 0
        self._most_inside = 0
        """Since the last step down."""
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[int]:
        """Wait for a place and hold it. Gives the number of steps down until then, to be told with the outcome."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._shut and self._inside < self.pace.concurrency)
            self._inside += 1
            self._most_inside = max(self._most_inside, self._inside)
        try:
            yield self._steps_down
        finally:
            async with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def calm(self, began: int) -> None:
        """The store did what was asked."""
        self._troubles = 0
        if began == self._steps_down:
            self.pace.succeeded()

    async def throttled(self, began: int) -> None:
        """The store asked for less: one step down, and nobody enters for a while."""
        if began != self._steps_down:
            return
        self.pace.throttled(self._most_inside)
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
"""What one DeleteObjects request may hold."""


def delete_gate(concurrency: int, sleep: Sleep = asyncio.sleep) -> Gate:
    """The way in for deleters that share their pace, with so many requests in flight at the most."""
    return Gate(Pace(page_size=PAGE_KEYS, concurrency=concurrency), sleep)
