"""Retry when a store was unavailable: reads, and writes that may be repeated.

Never repeated: deletes (the deleter does that itself, key by key), create-only writes (after a lost response the retry
would raise AlreadyThere although the write was ours) and listings that have already returned a batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from lakesweep.model.errors import Unavailable
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, Writer
from lakesweep.retry import Backoff
from lakesweep.storage.wrappers.base import Answer, Pages, WrappedStorage


class RetryingStorage(WrappedStorage):
    """A Storage that survives short outages."""

    def __init__(self, inner: Storage, backoff: Backoff) -> None:
        super().__init__(inner)
        self._backoff = backoff

    async def _call(self, _address: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._backoff.call(call)

    async def _pages(self, _address: str, listing: Callable[[], Pages]) -> Pages:
        """Start over only while nothing was returned: a consumer must never see a row twice."""
        failures = 0
        while True:
            started = False
            try:
                async with aclosing(listing()) as batches:
                    async for batch in batches:
                        started = True
                        yield batch
            except Unavailable:
                failures += 1
                if started or failures >= self._backoff.attempts:
                    raise
            else:
                return
            await self._backoff.pause(failures)


class RetryingWriter:
    """A Writer that repeats plain overwrites, which are idempotent."""

    def __init__(self, inner: Writer, backoff: Backoff) -> None:
        self._inner = inner
        self._backoff = backoff

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write; a create-only write has one attempt."""
        if create_only:
            await self._inner.put(location, data, create_only=True)
        else:
            await self._backoff.call(lambda: self._inner.put(location, data, create_only=False))

    async def aclose(self) -> None:
        await self._inner.aclose()
