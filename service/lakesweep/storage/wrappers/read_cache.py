"""Fetch an immutable object only once: manifest lists, which every cycle reads for every retained snapshot, and
manifests, which several parts of a cycle read.

Only on stores where a request costs something. Formats say which names are immutable. Lists are small and are cached on
disk. Manifests may be as large as the cache itself, so only the last ones are kept, in memory. A cached object that
somebody has deleted since counts as missing at the next listing, as every other live file does.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage
from lakesweep.storage.wrappers.base import Answer, Pages, WrappedStorage
from lakesweep.telemetry import requests

_AVRO = b"Obj\x01"
_MARK_BYTES = 16
MOST_BYTES = 4 * 1024**2
"""Larger objects are rare and are not cached."""


_RECENT_BYTES = 32 * 1024**2


class RecentObjects:
    """The objects that were read last, by address and by whose credentials read them. For one event loop."""

    def __init__(self, limit_bytes: int = _RECENT_BYTES) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._objects: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def get(self, reader: str, address: str) -> bytes | None:
        data = self._objects.get((reader, address))
        if data is not None:
            self._objects.move_to_end((reader, address))
        return data

    def put(self, reader: str, address: str, data: bytes) -> None:
        self._held += len(data) - len(self._objects.pop((reader, address), b""))
        self._objects[reader, address] = data
        while self._held > self._limit:
            self._held -= len(self._objects.popitem(last=False)[1])


class ObjectCache(Protocol):
    """Objects by address. Never required: it may forget anything."""

    def load_object(self, address: str) -> bytes | None: ...
    def store_object(self, address: str, data: bytes) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ReadCache:
    """Which objects are cached, and where."""

    immutable_names: re.Pattern[str]
    """The last part of the address: names that a writer uses only once."""
    open: Callable[[], ObjectCache | None]
    """None while there is no cache."""
    recent_names: re.Pattern[str] | None = None
    """Likewise, of objects that are only kept for a while."""
    recent: RecentObjects = field(default_factory=RecentObjects)
    reader: str = ""
    """Whose credentials are used."""

    def is_recent(self, location: Location) -> bool:
        """Is this an object that is kept for a while?"""
        names = self.recent_names
        return names is not None and not location.is_local and names.fullmatch(location.name) is not None

    def of(self, location: Location) -> ObjectCache | None:
        """The cache of this object; None if it must be read."""
        cached = not location.is_local and self.immutable_names.fullmatch(location.name) is not None
        return self.open() if cached else None


class CachedReads(WrappedStorage):
    """A Storage that reads immutable objects through a cache."""

    def __init__(self, inner: Storage, cache: ReadCache | None) -> None:
        super().__init__(inner)
        self._cache = cache

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        cache = self._cache.of(location) if self._cache else None
        if cache is None:
            return await self._read_recent(location, limit)
        known = await asyncio.to_thread(cache.load_object, location.raw)
        if known is not None and (limit is None or len(known) <= limit):
            return known
        data = await self._inner.read(location, limit)
        if len(data) <= MOST_BYTES and _is_whole(data):
            await asyncio.to_thread(cache.store_object, location.raw, data)
            requests.read_once(len(data))
        return data

    async def _read_recent(self, location: Location, limit: int | None) -> bytes:
        if self._cache is None or not self._cache.is_recent(location):
            return await self._inner.read(location, limit)
        recent, reader = self._cache.recent, self._cache.reader
        known = recent.get(reader, location.raw)
        if known is not None and (limit is None or len(known) <= limit):
            return known
        data = await self._inner.read(location, limit)
        if len(data) <= MOST_BYTES and _is_whole(data):
            recent.put(reader, location.raw, data)
        return data

    async def _call(self, _address: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await call()

    def _pages(self, _address: str, listing: Callable[[], Pages]) -> Pages:
        return listing()


def _is_whole(data: bytes) -> bool:
    """Does it end as an Avro file does, with the marker that ends its header? A truncated object must not be cached."""
    end = data[-_MARK_BYTES:]
    return data.startswith(_AVRO) and 0 <= data.find(end) < len(data) - _MARK_BYTES
