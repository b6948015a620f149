"""Where plans and ledgers are kept: files in a directory, or copies of them in an object store that replicas share.

A file is published whole, under a name that is never used again, before the state store learns its address. An object
store gets it in parts of bounded size, so that no plan has to fit in memory. Reads and writes only its own place.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lakesweep.cleanup.ports import Storage, Writer
from lakesweep.model.location import Location

PART_BYTES = 16 * 1024**2


class Artifacts:
    """`working` is a directory of this machine; `shared` is where copies go, None when that directory is all."""

    def __init__(
        self,
        working: Path,
        *,
        shared: Location | None = None,
        storage: Storage | None = None,
        writer: Writer | None = None,
    ) -> None:
        self._working = working
        self._shared = shared
        self._storage = storage
        self._writer = writer

    def file(self, kind: str, name: str) -> Path:
        """Where to write a file before it is published: `plans/…`, `ledgers/…`."""
        return self._working / kind / name

    async def publish(self, path: Path) -> str:
        """The address under which any replica finds the file."""
        if self._shared is None or self._writer is None:
            return str(path)
        size = (await asyncio.to_thread(path.stat)).st_size
        parts = max(1, -(-size // PART_BYTES))
        place = self._shared.join(*path.relative_to(self._working).parts, str(parts))
        with path.open("rb") as file:
            for part in range(parts):
                data = await asyncio.to_thread(file.read, PART_BYTES)
                await self._writer.put(place.join(str(part)), data, create_only=False)
        return place.raw

    @asynccontextmanager
    async def opened(self, address: str) -> AsyncIterator[str]:
        """A local file with the content of a published one. Raises NotFound or OSError when it is gone."""
        if self._shared is None or self._storage is None or "://" not in address:
            yield address
            return
        copy = self._working / "fetched" / f"{uuid.uuid4().hex}.parquet"
        try:
            await self._fetch(Location.parse(address), copy)
            yield str(copy)
        finally:
            copy.unlink(missing_ok=True)

    async def _fetch(self, place: Location, copy: Path) -> None:
        if self._storage is None:
            raise FileNotFoundError(place.raw)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("wb") as file:
            for part in range(int(place.name)):
                data = await self._storage.read(place.join(str(part)))
                await asyncio.to_thread(file.write, data)
