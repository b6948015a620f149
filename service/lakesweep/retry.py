"""Retries: the only back-off. docs/architecture.md lists which layer retries what.

`Backoff.call` repeats what can be repeated as it is. Code that must look again first has a loop of its own and takes
only the waits from here: a format commits from fresh metadata, a deleter checks its conditions before each request, and
a listing starts over only if it has returned nothing.

Retries of layers multiply: three attempts in one layer become six under a layer with two. So no layer retries a failure
that a layer below it has retried (`Unavailable.tried_again`), and the number of attempts is always bounded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from lakesweep.model.errors import Unavailable

Sleep = Callable[[float], Awaitable[None]]
Answer = TypeVar("Answer")
Duration = TypeVar("Duration", float, timedelta)

_DOUBLINGS_AT_MOST = 30


def doubled(failures: int, first: Duration, longest: Duration) -> Duration:
    """The wait after this many failures in a row: twice as long each time, up to the longest."""
    return min(longest, first * 2.0 ** min(failures - 1, _DOUBLINGS_AT_MOST))


class Backoff:
    """Number and timing of attempts: exponential, with full jitter so that clients do not return together."""

    def __init__(
        self, attempts: int, sleep: Sleep = asyncio.sleep, *, first: float = 0.2, longest: float = 10.0
    ) -> None:
        self.attempts = attempts
        self._sleep = sleep
        self._first = first
        self._longest = longest

    async def pause(self, failures: int) -> None:
        await self._sleep(random.uniform(0, doubled(failures, self._first, self._longest)))  # noqa: S311 - no secret

    async def call(self, operation: Callable[[], Awaitable[Answer]]) -> Answer:
        """The operation's result; it is retried while the store is unavailable and attempts are left."""
        failures = 0
        while True:
            try:
                return await operation()
            except Unavailable as exc:
                failures += 1
                if exc.tried_again or failures >= self.attempts:
                    raise
            await self.pause(failures)
