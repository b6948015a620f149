"""Hold a table's lease while one cycle runs on it. A lost lease stops the work at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

from lakesweep.cleanup.ports import StateStore
from lakesweep.model.errors import LeaseLost, Refused, StateError
from lakesweep.model.run import Lease


class HeldLease:
    """A lease with a heartbeat. Implements the Fence port."""

    def __init__(self, state: StateStore, lease: Lease, ttl: timedelta) -> None:
        self._state = state
        self._lease = lease
        self._ttl = ttl
        self._lost: LeaseLost | None = None

    @property
    def token(self) -> int:
        """The fencing token: journal entries carry it, older ones are void."""
        return self._lease.token

    async def check(self) -> None:
        """Ask the store, not our own clock: only it knows who owns the table."""
        if self._lost:
            raise self._lost
        await self._state.check_lease(self._lease)

    async def heartbeat(self) -> None:
        """Renew until cancelled. One failed renewal is tried again: the lease outlives several beats."""
        while True:
            await asyncio.sleep(self._ttl.total_seconds() / 3)
            try:
                self._lease = await self._state.renew_lease(self._lease, self._ttl)
            except LeaseLost as exc:
                self._lost = exc
                return
            except StateError:
                continue

    async def release(self) -> None:
        """Give the table back. A store that is away lets the lease run out by itself."""
        with contextlib.suppress(LeaseLost, StateError):
            await self._state.release_lease(self._lease)


@contextlib.asynccontextmanager
async def lease(state: StateStore, table: str, owner: str, ttl: timedelta) -> AsyncIterator[HeldLease]:
    """Claim the table for the time of one cycle, or refuse because somebody else works on it."""
    claimed = await state.acquire_lease(table, owner, ttl)
    if claimed is None:
        raise Refused("busy", f"{table} is being cleaned by another process; its lease ends by itself if that dies")
    held = HeldLease(state, claimed, ttl)
    beat = asyncio.create_task(held.heartbeat(), name=f"heartbeat {table}")
    try:
        yield held
    finally:
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beat
        await held.release()
