"""Try again: the one back-off, and the one loop around it. Which layer tries what how often is in docs/architecture.md.

Layers multiply: what one of them tries three times is sent six times by a layer above that tries twice. So a layer
tries again only what no layer below it does, and the number of its tries is always bounded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from lakesweep.model.errors import LakesweepError, Unavailable

Sleep = Callable[[float], Awaitable[None]]
Answer = TypeVar("Answer")
Duration = TypeVar("Duration", float, timedelta)

_DOUBLINGS_AT_MOST = 30


def doubled(failures: int, first: Duration, longest: Duration) -> Duration:
    """How long to wait after so many failures in a row: twice as long each time, up to the longest."""
    return min(longest, first * 2.0 ** min(failures - 1, _DOUBLINGS_AT_MOST))


class Backoff:
    """How often and how late to try again: exponential, with full jitter so that clients do not return together."""

    def __init__(
        self, attempts: int, sleep: Sleep = asyncio.sleep, *, first: float = 0.2, longest: float = 10.0
    ) -> None:
        self.attempts = attempts
        self._sleep = sleep
        self._first = first
        self._longest = longest

    async def pause(self, failures: int) -> None:
        """Wait after the given number of failures."""
        await self._sleep(random.uniform(0, doubled(failures, self._first, self._longest)))  # noqa: S311 - no secret

    async def call(self, operation: Callable[[], Awaitable[Answer]], on: type[LakesweepError] = Unavailable) -> Answer:
        """The operation's answer, tried again while it fails in this way and attempts are left."""
        failures = 0
        while True:
            try:
                return await operation()
            except on:
                failures += 1
                if failures >= self.attempts:
                    raise
            await self.pause(failures)
