"""Bound how much is asked of the stores at once.

A listing holds its place only while it waits for the next batch, never while the consumer works on one: so a
consumer that reads objects in the middle of a listing cannot wait for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime

import pyarrow as pa

from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part, Storage


class LimitedStorage:
    """A Storage with at most `max_in_flight` steps running."""

    def __init__(self, inner: Storage, max_in_flight: int) -> None:
        self._inner = inner
        self._places = asyncio.Semaphore(max_in_flight)

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """One place per batch."""
        return self._placed(self._inner.list(root))

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """One place per batch."""
        return self._placed(self._inner.list_part(part))

    async def _placed(self, listing: AsyncGenerator[pa.RecordBatch, None]) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(listing) as batches:
            while True:
                async with self._places:
                    batch = await anext(batches, None)
                if batch is None:
                    return
                yield batch

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """One place for all of it."""
        async with self._places:
            return await self._inner.parts(root, wanted)

    async def directories(self, root: Location) -> Sequence[str]:
        """One level."""
        async with self._places:
            return await self._inner.directories(root)

    async def irregular(self, root: Location) -> Sequence[str]:
        """One place for all of it."""
        async with self._places:
            return await self._inner.irregular(root)

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object."""
        async with self._places:
            return await self._inner.read(location, limit)

    async def stat(self, location: Location) -> StoredObject:
        """One object's size, time and etag."""
        async with self._places:
            return await self._inner.stat(location)

    async def now(self) -> datetime:
        """The store's clock."""
        async with self._places:
            return await self._inner.now()

    async def aclose(self) -> None:
        """Close the wrapped store."""
        await self._inner.aclose()
