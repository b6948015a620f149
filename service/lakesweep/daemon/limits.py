"""What all tables together may do at one time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lakesweep.settings.schema import DaemonSettings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Places for planning and for deletion batches, over all tables. Reading for a sweep never waits."""

    listings: asyncio.Semaphore
    deletions: asyncio.Semaphore

    @classmethod
    def of(cls, settings: DaemonSettings) -> Limits:
        """As many as the settings allow."""
        return cls(
            listings=asyncio.Semaphore(settings.max_listings), deletions=asyncio.Semaphore(settings.max_deletions)
        )
