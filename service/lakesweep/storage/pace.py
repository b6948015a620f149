"""How much to ask of a store that may throttle: shrink fast, grow slowly. Pure, but for the waiting in `Gate`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_GROW_AFTER = 5
"""Calm requests before the next step up."""
_PAGE_STEP = 100
SMALLEST_PAGE = 25


class Pace:
    """Keys per request and requests in flight, between a floor and the configured top."""

    def __init__(self, *, page_size: int, concurrency: int) -> None:
        self._top_page = page_size
        self._top_concurrency = concurrency
        self.page_size = page_size
        self.concurrency = concurrency
        self._calm = 0

    def throttled(self) -> None:
        """The store asked for less: halve both."""
        self._calm = 0
        self.page_size = max(min(SMALLEST_PAGE, self._top_page), self.page_size // 2)
        self.concurrency = max(1, self.concurrency // 2)

    def succeeded(self) -> None:
        """One more calm request; after a few of them, one step up."""
        self._calm += 1
        if self._calm >= _GROW_AFTER:
            self._calm = 0
            self.page_size = min(self._top_page, self.page_size + _PAGE_STEP)
            self.concurrency = min(self._top_concurrency, self.concurrency + 1)


class Gate:
    """Lets as many in as the pace allows at that moment."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._inside = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Wait for a place and hold it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._inside < self._pace.concurrency)
            self._inside += 1
        try:
            yield
        finally:
            async with self._changed:
                self._inside -= 1
                self._changed.notify_all()
