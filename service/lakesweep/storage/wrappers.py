"""What stands around a store: limits of time and concurrency, retries, and the places that a tenant may reach.

Each call goes through `_call` and each listing through `_pages`. A wrapper must implement these two, and so cannot
forget a method of the port."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import datetime
from typing import TypeVar

import pyarrow as pa

from lakesweep.model.errors import OutsideRoot, Refused, StorageError, Unavailable
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.storage import Part, Storage, Writer
from lakesweep.retry import Backoff
from lakesweep.storage.spec import Confine
from lakesweep.telemetry import activity

Answer = TypeVar("Answer")
Pages = AsyncGenerator[pa.RecordBatch, None]


class WrappedStorage(ABC):
    """A Storage around another one."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def _at(self, place: Location) -> Storage:  # noqa: ARG002  # for a wrapper around several stores
        return self._inner

    @abstractmethod
    async def _call(self, place: Location | None, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make one call of the port; without a place it is for the store's clock."""

    @abstractmethod
    def _pages(self, place: Location, listing: Callable[[], Pages]) -> Pages:
        """Pass on the batches of a listing."""

    def list(self, root: Location) -> Pages:
        return self._pages(root, lambda: self._at(root).list(root))

    def list_part(self, part: Part) -> Pages:
        return self._pages(part.root, lambda: self._at(part.root).list_part(part))

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        return await self._call(root, lambda: self._at(root).parts(root, wanted))

    async def directories(self, root: Location) -> Sequence[str]:
        return await self._call(root, lambda: self._at(root).directories(root))

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        return await self._call(root, lambda: self._at(root).directories_among(root, names))

    async def irregular(self, root: Location) -> Sequence[str]:
        return await self._call(root, lambda: self._at(root).irregular(root))

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        return await self._call(location, lambda: self._at(location).read(location, limit))

    async def stat(self, location: Location) -> StoredObject:
        return await self._call(location, lambda: self._at(location).stat(location))

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        return await self._call(one, lambda: self._at(one).stat_together(one, other))

    async def now(self) -> datetime:
        return await self._call(None, self._inner.now)

    async def aclose(self) -> None:
        await self._inner.aclose()


class PassingStorage(WrappedStorage):
    """Passes everything on: for what changes single methods, or only chooses the store."""

    async def _call(self, place: Location | None, call: Callable[[], Awaitable[Answer]]) -> Answer:  # noqa: ARG002
        return await call()

    def _pages(self, place: Location, listing: Callable[[], Pages]) -> Pages:  # noqa: ARG002
        return listing()


class SteppedStorage(WrappedStorage):
    """Wraps each call and the wait for each batch, but not the time a consumer works on one."""

    @abstractmethod
    def _step(self, place: Location | None) -> AbstractAsyncContextManager[object]:
        """The context manager around a step."""

    async def _call(self, place: Location | None, call: Callable[[], Awaitable[Answer]]) -> Answer:
        async with self._step(place):
            return await call()

    async def _pages(self, place: Location, listing: Callable[[], Pages]) -> Pages:
        async with aclosing(listing()) as batches:
            while True:
                async with self._step(place):
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

    def _step(self, _place: Location | None) -> asyncio.Semaphore:
        return self._places


class DeadlineStorage(SteppedStorage):
    """A Storage with a time limit for every step: a call that hangs would block its table for ever. A timeout raises a
    StorageError that is never retried: the call may still hang in a thread, and a second one would hang too."""

    def __init__(self, inner: Storage, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds

    @asynccontextmanager
    async def _step(self, place: Location | None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                yield
            activity.touch()
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            address = "the store's clock" if place is None else place.raw
            raise StorageError(address, f"no answer within {self._seconds:g} s (storage.call_timeout_seconds)") from exc


class RetryingStorage(WrappedStorage):
    """A Storage that survives short outages. Never repeated: what the store's client has repeated, deletes (the deleter
    does that itself, key by key) and listings that have already returned a batch."""

    def __init__(self, inner: Storage, backoff: Backoff) -> None:
        super().__init__(inner)
        self._backoff = backoff

    async def _call(self, _place: Location | None, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._backoff.call(call)

    async def _pages(self, _place: Location, listing: Callable[[], Pages]) -> Pages:
        """Start over only while nothing was returned: a consumer must never see a row twice."""
        failures = 0
        while True:
            started = False
            try:
                async with aclosing(listing()) as batches:
                    async for batch in batches:
                        started = True
                        yield batch
            except Unavailable as exc:
                failures += 1
                if started or exc.tried_again or failures >= self._backoff.attempts:
                    raise
            else:
                return
            await self._backoff.pause(failures)


class RetryingWriter:
    """A Writer that repeats plain overwrites, which are idempotent. A create-only write has one attempt: after a lost
    response the retry would raise AlreadyThere although the write was ours."""

    def __init__(self, inner: Writer, backoff: Backoff) -> None:
        self._inner = inner
        self._backoff = backoff

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        if create_only:
            await self._inner.put(location, data, create_only=True)
        else:
            await self._backoff.call(lambda: self._inner.put(location, data, create_only=False))

    async def aclose(self) -> None:
        await self._inner.aclose()


class ConfinedStorage(WrappedStorage):
    """A Storage confined to some places, and to objects that are not larger than metadata may be. Without `confine`
    only sizes are limited. The outermost wrapper, so that nothing outside is ever requested.

    Addresses in a table's metadata, a catalog or a hint are chosen by a tenant. Every such address passes through here.
    An address outside is refused with the same message whether or not something is there. The local store itself
    follows no link below the same places; see `local.open_below`."""

    def __init__(self, inner: Storage, confine: Confine | None, max_bytes: int) -> None:
        super().__init__(inner)
        self._confine = confine
        self._max_bytes = max_bytes

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """Some metadata outside may be read, see `Confine`, but not listed."""
        if self._confine is not None and not self._confine.allows_reading(location):
            raise OutsideRoot(location.raw)
        return await self._inner.read(location, self._max_bytes if limit is None else min(limit, self._max_bytes))

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        self._check(one)
        self._check(other)
        return await self._inner.stat_together(one, other)

    async def _call(self, place: Location | None, call: Callable[[], Awaitable[Answer]]) -> Answer:
        if place is not None:
            self._check(place)
        return await call()

    def _pages(self, place: Location, listing: Callable[[], Pages]) -> Pages:
        self._check(place)
        return listing()

    def _check(self, location: Location) -> None:
        if self._confine is not None and not self._confine.allows(location):
            raise OutsideRoot(location.raw)


class ConfinedWriter:
    """A Writer confined to the same places."""

    def __init__(self, inner: Writer, confine: Confine) -> None:
        self._inner = inner
        self._confine = confine

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        if not self._confine.allows(location):
            raise Refused(RefusalCode.OUTSIDE_ROOT, f"{location} is outside the tenant's root; nothing was written")
        await self._inner.put(location, data, create_only=create_only)

    async def aclose(self) -> None:
        await self._inner.aclose()
