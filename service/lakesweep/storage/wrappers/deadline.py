"""Give up on a store that does not answer. A call that hangs for ever would keep its table and its place for ever.

Each call has so many seconds, and each batch of a listing. What gives up raises a StorageError that nobody repeats:
the call itself may still hang in a thread, and a second one would hang beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime

import pyarrow as pa

from lakesweep.model.errors import StorageError
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part, Storage
from lakesweep.telemetry import activity


class DeadlineStorage:
    """A Storage whose every step ends in time."""

    def __init__(self, inner: Storage, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """So many seconds for each batch."""
        return self._timed(self._inner.list(root), root.raw)

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """In the same way."""
        return self._timed(self._inner.list_part(part), part.root.raw)

    async def _timed(
        self, listing: AsyncGenerator[pa.RecordBatch, None], address: str
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(listing) as batches:
            while True:
                async with self._within(address):
                    batch = await anext(batches, None)
                if batch is None:
                    return
                yield batch

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Parts of a listing."""
        async with self._within(root.raw):
            return await self._inner.parts(root, wanted)

    async def directories(self, root: Location) -> Sequence[str]:
        """One level."""
        async with self._within(root.raw):
            return await self._inner.directories(root)

    async def irregular(self, root: Location) -> Sequence[str]:
        """All levels."""
        async with self._within(root.raw):
            return await self._inner.irregular(root)

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object."""
        async with self._within(location.raw):
            return await self._inner.read(location, limit)

    async def stat(self, location: Location) -> StoredObject:
        """One object's size, time and etag."""
        async with self._within(location.raw):
            return await self._inner.stat(location)

    async def now(self) -> datetime:
        """The store's clock."""
        async with self._within("the store's clock"):
            return await self._inner.now()

    async def aclose(self) -> None:
        """Close the wrapped store."""
        await self._inner.aclose()

    @asynccontextmanager
    async def _within(self, address: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                yield
            activity.touch()
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            raise StorageError(address, f"no answer within {self._seconds:g} s (storage.call_timeout_seconds)") from exc
