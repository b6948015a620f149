"""Fetch an object only once where a request costs something. The cache is bounded, signed and never required.

`CachedReads` is for names that a writer uses only once; formats say which these are. Manifest lists, which every cycle
reads for every retained snapshot, are small and are cached on disk. Manifests may be as large as the cache itself, so
only the last ones are kept, in memory. A cached object that somebody has deleted since counts as missing at the next
listing, as every other live file does.

`ListedContents` is for names that may be given again: the files of a Delta log, the snapshots of a Paimon table."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage
from lakesweep.storage.wrappers import PassingStorage
from lakesweep.telemetry import requests

_AVRO = b"Obj\x01"
_MARK_BYTES = 16
MOST_BYTES = 4 * 1024**2
"""Larger objects are rare and are not cached."""
_RECENT_BYTES = 32 * 1024**2
_MD5 = re.compile(r"[0-9a-f]{32}")


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
        names = self.recent_names
        return names is not None and not location.is_local and names.fullmatch(location.name) is not None

    def of(self, location: Location) -> ObjectCache | None:
        """The cache of this object; None if it must be read."""
        cached = not location.is_local and self.immutable_names.fullmatch(location.name) is not None
        return self.open() if cached else None


class CachedReads(PassingStorage):
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


def _is_whole(data: bytes) -> bool:
    """Does it end as an Avro file does, with the marker that ends its header? A truncated object must not be cached."""
    end = data[-_MARK_BYTES:]
    return data.startswith(_AVRO) and 0 <= data.find(end) < len(data) - _MARK_BYTES


class ListedContents:
    """The KnownContents port over a cache on disk.

    A name proves nothing here: a table may be dropped and created anew in its place, a log may be set back to a backup.
    So a remembered object counts only if a listing that was just made shows the same address, size and time, and an
    etag that is the MD5 of the remembered bytes. What is remembered is therefore what is stored, or it is not used.
    Stores without such etags (local disks, S3 with KMS keys, objects uploaded in parts) are read every time."""

    def __init__(self, open_cache: Callable[[], ObjectCache | None]) -> None:
        """`open_cache` returns None while there is no cache."""
        self._open = open_cache

    async def load(self, stored: StoredObject) -> bytes | None:
        cache = self._cache(stored)
        return None if cache is None else await asyncio.to_thread(_load, cache, stored)

    async def store(self, stored: StoredObject, data: bytes) -> None:
        """Not if the object was replaced between the listing and the read."""
        cache = self._cache(stored)
        if cache is not None and await asyncio.to_thread(_store, cache, stored, data):
            requests.read_once(len(data))

    def _cache(self, stored: StoredObject) -> ObjectCache | None:
        known = not stored.location.is_local and stored.etag is not None and stored.modified_at is not None
        small = 0 < stored.size_bytes <= MOST_BYTES
        return self._open() if known and small and _MD5.fullmatch(stored.etag or "") else None


def _load(cache: ObjectCache, stored: StoredObject) -> bytes | None:
    data = cache.load_object(_key(stored))
    return data if data is not None and _is_it(stored, data) else None


def _store(cache: ObjectCache, stored: StoredObject, data: bytes) -> bool:
    if not _is_it(stored, data):
        return False
    cache.store_object(_key(stored), data)
    return True


def _is_it(stored: StoredObject, data: bytes) -> bool:
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return (len(data), digest) == (stored.size_bytes, stored.etag)


def _key(stored: StoredObject) -> str:
    return f"{stored.location.raw} {stored.size_bytes} {stored.modified_at} {stored.etag}"
