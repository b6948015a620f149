"""Try again what a store was not available for: reads, and writes that may be repeated.

Never repeated: deletes (the deleter does that itself, key by key), create-only writes (a lost answer would come
back as AlreadyThere although the write was ours) and listings that have already handed out a batch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime

import pyarrow as pa

from lakesweep.model.errors import Unavailable
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part, Storage, Writer
from lakesweep.retry import Backoff


class RetryingStorage:
    """A Storage that waits out short outages."""

    def __init__(self, inner: Storage, backoff: Backoff) -> None:
        self._inner = inner
        self._backoff = backoff

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """Start over only while nothing was handed out: a consumer must never see a row twice."""
        return self._from_the_start(lambda: self._inner.list(root))

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """In the same way."""
        return self._from_the_start(lambda: self._inner.list_part(part))

    async def _from_the_start(
        self, listing: Callable[[], AsyncGenerator[pa.RecordBatch, None]]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
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

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Once more from the start."""
        return await self._backoff.call(lambda: self._inner.parts(root, wanted))

    async def directories(self, root: Location) -> Sequence[str]:
        """One level."""
        return await self._backoff.call(lambda: self._inner.directories(root))

    async def irregular(self, root: Location) -> Sequence[str]:
        """Again while the store is unavailable."""
        return await self._backoff.call(lambda: self._inner.irregular(root))

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object."""
        return await self._backoff.call(lambda: self._inner.read(location, limit))

    async def stat(self, location: Location) -> StoredObject:
        """One object's size, time and etag."""
        return await self._backoff.call(lambda: self._inner.stat(location))

    async def now(self) -> datetime:
        """The store's clock."""
        return await self._backoff.call(self._inner.now)

    async def aclose(self) -> None:
        """Close the wrapped store."""
        await self._inner.aclose()


class RetryingWriter:
    """A Writer that repeats plain overwrites, which come to the same whether done once or twice."""

    def __init__(self, inner: Writer, backoff: Backoff) -> None:
        self._inner = inner
        self._backoff = backoff

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write; a create-only write gets one try."""
        if create_only:
            await self._inner.put(location, data, create_only=True)
        else:
            await self._backoff.call(lambda: self._inner.put(location, data, create_only=False))

    async def aclose(self) -> None:
        """Close the wrapped store."""
        await self._inner.aclose()
