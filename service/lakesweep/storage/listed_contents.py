"""Contents of objects whose names may be given again, remembered from cycle to cycle: the files of a Delta log, the
snapshots of a Paimon table.

A name proves nothing there: a table may be dropped and created anew in its place, a log may be set back to a backup. So
a remembered object counts only if a listing that was just made shows the same address, size and time, and an etag that
is the MD5 of the remembered bytes. What is remembered is therefore what is stored, or it is not used. Stores without
such etags (local disks, S3 with KMS keys, objects uploaded in parts) are read every time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable

from lakesweep.model.files import StoredObject
from lakesweep.storage.wrappers.read_cache import MOST_BYTES, ObjectCache
from lakesweep.telemetry import requests

_MD5 = re.compile(r"[0-9a-f]{32}")


class ListedContents:
    """The KnownContents port over a cache on disk. The cache is bounded, signed and never required."""

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
