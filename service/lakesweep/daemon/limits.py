"""What all tables together may do at one time, and how much of it one tenant may have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType

from lakesweep.settings.schema import DaemonSettings


def share(places: int) -> int:
    """How many slots one tenant may have: about three quarters, and never the last one if there are several.

    A tenant whose store hangs keeps its slots for as long as a call may take. The others work with the rest.
    """
    return max(1, places - max(1, places // 4))


class Slots:
    """Slots that all tables share. `of` gives one tenant's part of them."""

    def __init__(self, places: int) -> None:
        self._all = asyncio.Semaphore(places)
        self._share = share(places)
        self._tenants: dict[str, TenantPlaces] = {}

    def of(self, tenant: str) -> TenantPlaces:
        if tenant not in self._tenants:
            self._tenants[tenant] = TenantPlaces(asyncio.Semaphore(self._share), self._all)
        return self._tenants[tenant]


class TenantPlaces:
    """One tenant's part of some slots. Used like a semaphore."""

    def __init__(self, own: asyncio.Semaphore, shared: asyncio.Semaphore) -> None:
        self._own = own
        self._shared = shared

    def locked(self) -> bool:
        return self._own.locked() or self._shared.locked()

    async def acquire(self) -> bool:
        """The tenant's own slot first: a tenant that has used its share does not wait among the others."""
        await self._own.acquire()
        try:
            return await self._shared.acquire()
        except BaseException:
            self._own.release()
            raise

    def release(self) -> None:
        self._shared.release()
        self._own.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Slots for planning and for deletion batches, over all tables. Reading for a sweep never waits."""

    listings: Slots
    deletions: Slots

    @classmethod
    def of(cls, settings: DaemonSettings) -> Limits:
        return cls(listings=Slots(settings.max_listings), deletions=Slots(settings.max_deletions))
