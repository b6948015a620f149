"""Read and write only where the tenant may. The outermost wrapper, so that nothing outside is ever requested.

Addresses in a table's metadata, a catalog or a hint are chosen by a tenant. Every such address passes through here. An
address outside is refused with the same message whether or not something is there, and no object is read that is larger
than metadata may be. The local store itself follows no link below the same places; see `local.open_below`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

import pyarrow as pa

from lakesweep.model.errors import OutsideRoot, Refused
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part, Storage, Writer
from lakesweep.storage.spec import Confine


class ConfinedStorage:
    """A Storage confined to some places. Without `confine` only sizes are limited."""

    def __init__(self, inner: Storage, confine: Confine | None, max_bytes: int) -> None:
        self._inner = inner
        self._confine = confine
        self._max_bytes = max_bytes

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        self._check(root)
        return self._inner.list(root)

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        self._check(root)
        return await self._inner.parts(root, wanted)

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        self._check(part.root)
        return self._inner.list_part(part)

    async def directories(self, root: Location) -> Sequence[str]:
        self._check(root)
        return await self._inner.directories(root)

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        self._check(root)
        return await self._inner.directories_among(root, names)

    async def irregular(self, root: Location) -> Sequence[str]:
        self._check(root)
        return await self._inner.irregular(root)

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """Only inside, and never more bytes than metadata may have."""
        if self._confine is not None and not self._confine.allows_reading(location):
            raise OutsideRoot(location.raw)
        return await self._inner.read(location, self._max_bytes if limit is None else min(limit, self._max_bytes))

    async def stat(self, location: Location) -> StoredObject:
        self._check(location)
        return await self._inner.stat(location)

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        self._check(one)
        self._check(other)
        return await self._inner.stat_together(one, other)

    async def now(self) -> datetime:
        return await self._inner.now()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _check(self, location: Location) -> None:
        if self._confine is not None and not self._confine.allows(location):
            raise OutsideRoot(location.raw)


class ConfinedWriter:
    """A Writer confined to the same places."""

    def __init__(self, inner: Writer, confine: Confine) -> None:
        self._inner = inner
        self._confine = confine

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Refused outside, before anything is written."""
        if not self._confine.allows(location):
            raise Refused("outside_root", f"{location} is outside the tenant's root; nothing was written")
        await self._inner.put(location, data, create_only=create_only)

    async def aclose(self) -> None:
        await self._inner.aclose()
