"""Count what is asked of the stores. Innermost, so that every retry counts as the request it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Conditions, Deleted, Deleter, DeleteStatus
from lakesweep.ports.storage import Part, Storage, Writer
from lakesweep.telemetry import activity


@dataclass(slots=True)
class Stats:
    """Running totals of one process. Only ever grows; telemetry reads it."""

    calls: Counter[str] = field(default_factory=Counter)
    """Port calls by name; a listing counts once per batch."""
    objects_listed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    objects_deleted: int = 0
    deletes_failed: int = 0


class MeteredStorage:
    """A Storage that counts."""

    def __init__(self, inner: Storage, stats: Stats) -> None:
        self._inner = inner
        self._stats = stats

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """Count batches and objects."""
        return self._counted(self._inner.list(root))

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """Count batches and objects."""
        return self._counted(self._inner.list_part(part))

    async def _counted(self, listing: AsyncGenerator[pa.RecordBatch, None]) -> AsyncGenerator[pa.RecordBatch, None]:
        async with aclosing(listing) as batches:
            async for batch in batches:
                self._stats.calls["list"] += 1
                self._stats.objects_listed += batch.num_rows
                yield batch

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Count the call."""
        self._stats.calls["parts"] += 1
        return await self._inner.parts(root, wanted)

    async def directories(self, root: Location) -> Sequence[str]:
        """Count the call."""
        self._stats.calls["directories"] += 1
        return await self._inner.directories(root)

    async def irregular(self, root: Location) -> Sequence[str]:
        """Count the call."""
        self._stats.calls["irregular"] += 1
        return await self._inner.irregular(root)

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """Count bytes."""
        self._stats.calls["read"] += 1
        data = await self._inner.read(location, limit)
        self._stats.bytes_read += len(data)
        return data

    async def stat(self, location: Location) -> StoredObject:
        """Count the call."""
        self._stats.calls["stat"] += 1
        return await self._inner.stat(location)

    async def now(self) -> datetime:
        """Count the call."""
        self._stats.calls["now"] += 1
        return await self._inner.now()

    async def aclose(self) -> None:
        """Close the wrapped store."""
        await self._inner.aclose()


class MeteredDeleter:
    """A Deleter that counts."""

    def __init__(self, inner: Deleter, stats: Stats) -> None:
        self._inner = inner
        self._stats = stats

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """Count objects by fate."""
        self._stats.calls["delete"] += 1
        answers = await self._inner.delete(paths, conditions)
        activity.touch()
        fates = [one.fate for one in answers]
        self._stats.objects_deleted += fates.count(DeleteStatus.DELETED)
        self._stats.deletes_failed += fates.count(DeleteStatus.FAILED)
        return answers

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Count the call."""
        self._stats.calls["remove_empty_directories"] += 1
        return await self._inner.remove_empty_directories(root, directories)

    async def aclose(self) -> None:
        """Close the wrapped deleter."""
        await self._inner.aclose()


class MeteredWriter:
    """A Writer that counts."""

    def __init__(self, inner: Writer, stats: Stats) -> None:
        self._inner = inner
        self._stats = stats

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Count bytes that arrived."""
        self._stats.calls["put"] += 1
        await self._inner.put(location, data, create_only=create_only)
        self._stats.bytes_written += len(data)

    async def aclose(self) -> None:
        """Close the wrapped writer."""
        await self._inner.aclose()
