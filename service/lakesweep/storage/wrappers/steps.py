"""Limits for each step (a call, or the wait for one batch of a listing): how many at once, and how many seconds
each."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from lakesweep.model.errors import StorageError
from lakesweep.ports.storage import Storage
from lakesweep.storage.wrappers.base import Answer, Pages, WrappedStorage
from lakesweep.telemetry import activity


class SteppedStorage(WrappedStorage):
    """Wraps each call and the wait for each batch, but not the time a consumer works on one."""

    @abstractmethod
    def _step(self, address: str) -> AbstractAsyncContextManager[object]:
        """The context manager around a step."""

    async def _call(self, address: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        async with self._step(address):
            return await call()

    async def _pages(self, address: str, listing: Callable[[], Pages]) -> Pages:
        async with aclosing(listing()) as batches:
            while True:
                async with self._step(address):
                    batch = await anext(batches, None)
                if batch is None:
                    return
                yield batch


class LimitedStorage(SteppedStorage):
    """A Storage with at most `max_in_flight` steps running. A consumer that reads objects during a listing cannot
    deadlock."""

    def __init__(self, inner: Storage, max_in_flight: int) -> None:
        super().__init__(inner)
        self._places = asyncio.Semaphore(max_in_flight)

    def _step(self, _address: str) -> asyncio.Semaphore:
        return self._places


class DeadlineStorage(SteppedStorage):
    """A Storage with a time limit for every step: a call that hangs would block its table for ever.

    A timeout raises a StorageError that is never retried: the call may still hang in a thread, and a second one would
    hang too.
    """

    def __init__(self, inner: Storage, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds

    @asynccontextmanager
    async def _step(self, address: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                yield
            activity.touch()
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            raise StorageError(address, f"no answer within {self._seconds:g} s (storage.call_timeout_seconds)") from exc
