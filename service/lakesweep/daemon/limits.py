"""What all tables together may do at one time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakesweep.cleanup.ports import Engine, OrphanJob, ReferenceSource
from lakesweep.model.files import OrphanPlan
from lakesweep.settings.schema import DaemonSettings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Places for listings and for deletion batches, over all tables."""

    listings: asyncio.Semaphore
    deletions: asyncio.Semaphore

    @classmethod
    def of(cls, settings: DaemonSettings) -> Limits:
        """As many as the settings allow."""
        return cls(
            listings=asyncio.Semaphore(settings.max_listings), deletions=asyncio.Semaphore(settings.max_deletions)
        )


class LimitedEngine:
    """An Engine that plans only as many tables at once as there are places. Reading for a sweep never waits."""

    def __init__(self, inner: Engine, places: asyncio.Semaphore) -> None:
        self._inner = inner
        self._places = places
        self.name = inner.name

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        """In one of the places."""
        async with self._places:
            return await self._inner.find_orphans(job)

    def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncIterator[tuple[ReferenceSource, pa.RecordBatch]]:
        """At once."""
        return self._inner.read_references(sources)

    async def aclose(self) -> None:
        """Close the wrapped engine."""
        await self._inner.aclose()
