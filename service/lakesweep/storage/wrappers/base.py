"""What the wrappers have in common: each call goes through `_call` and each listing through `_pages`.

A wrapper overrides these two, and so cannot forget a method of the port.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import TypeVar

import pyarrow as pa

from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part, Storage

Answer = TypeVar("Answer")
Pages = AsyncGenerator[pa.RecordBatch, None]


class WrappedStorage(ABC):
    """A Storage around another one."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @abstractmethod
    async def _call(self, address: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make one call of the port."""

    @abstractmethod
    def _pages(self, address: str, listing: Callable[[], Pages]) -> Pages:
        """Pass on the batches of a listing."""

    def list(self, root: Location) -> Pages:
        return self._pages(root.raw, lambda: self._inner.list(root))

    def list_part(self, part: Part) -> Pages:
        return self._pages(part.root.raw, lambda: self._inner.list_part(part))

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        return await self._call(root.raw, lambda: self._inner.parts(root, wanted))

    async def directories(self, root: Location) -> Sequence[str]:
        return await self._call(root.raw, lambda: self._inner.directories(root))

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        return await self._call(root.raw, lambda: self._inner.directories_among(root, names))

    async def irregular(self, root: Location) -> Sequence[str]:
        return await self._call(root.raw, lambda: self._inner.irregular(root))

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        return await self._call(location.raw, lambda: self._inner.read(location, limit))

    async def stat(self, location: Location) -> StoredObject:
        return await self._call(location.raw, lambda: self._inner.stat(location))

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        return await self._call(one.raw, lambda: self._inner.stat_together(one, other))

    async def now(self) -> datetime:
        return await self._call("the store's clock", self._inner.now)

    async def aclose(self) -> None:
        await self._inner.aclose()
