"""Keep a table's lease while one cycle runs on it. A lost lease stops the work at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import structlog

from lakesweep.daemon.clock import STEADY
from lakesweep.model.errors import LeaseLost, Refused, StateError
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Lease
from lakesweep.ports.state import StateStore

log = structlog.get_logger()

_BEATS = 3
"""Renewals in the time of one lease: two may fail before it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment on two clocks: the event loop's, which time-outs use, and one that runs while the machine sleeps."""

    by_loop: float
    awake_or_not: float

    @classmethod
    def now(cls) -> Moment:
        return cls(by_loop=asyncio.get_running_loop().time(), awake_or_not=time.clock_gettime(STEADY))

    def after(self, span: timedelta) -> Moment:
        seconds = span.total_seconds()
        return Moment(by_loop=self.by_loop + seconds, awake_or_not=self.awake_or_not + seconds)


class HeldLease:
    """A lease with a heartbeat. Implements the Fence port."""

    def __init__(self, state: StateStore, lease: Lease, ttl: timedelta, sent_at: Moment) -> None:
        self._state = state
        self._lease = lease
        self._ttl = ttl
        self._lost: LeaseLost | None = None
        # Counted from before the store was queried, so by the store's clock the lease ends later, never earlier.
        self._ends = sent_at.after(ttl)
        self._deadline: asyncio.Timeout | None = None

    @property
    def token(self) -> int:
        """The fencing token: journal entries carry it, older ones are void."""
        return self._lease.token

    async def check(self) -> None:
        """Read the store, not our own clock: only it knows who owns the table."""
        if self._lost:
            raise self._lost
        await self._state.check_lease(self._lease)

    def check_time(self) -> None:
        """By our own clock alone: a process that was stopped, or suspended with its machine, notices in time."""
        if self._lost is None and time.clock_gettime(STEADY) >= self._ends.awake_or_not:
            self._lost = LeaseLost(f"the lease on {self._lease.table} expired while this process was suspended")
        if self._lost:
            raise self._lost

    @contextlib.asynccontextmanager
    async def guarding(self) -> AsyncIterator[None]:
        """Cancels what runs inside the moment the lease is lost or has not been renewed in time: LeaseLost."""
        try:
            async with asyncio.timeout_at(self._ends.by_loop) as self._deadline:
                yield
        except TimeoutError:
            if self._deadline is None or not self._deadline.expired():
                raise
            late = LeaseLost(f"the lease on {self._lease.table} was not renewed in time")
            self._lost = self._lost or late
            raise self._lost from None
        finally:
            self._deadline = None

    async def heartbeat(self) -> None:
        """Renew until cancelled or lost. A failed renewal is tried again: the lease outlives several beats."""
        while True:
            await asyncio.sleep(self._ttl.total_seconds() / _BEATS)
            sent_at = Moment.now()
            try:
                self._lease = await self._state.renew_lease(self._lease, self._ttl)
            except LeaseLost as exc:
                self._lost = exc
                self._end_at(Moment.now())
                return
            except StateError as exc:
                log.warning("lease_not_renewed", reason=str(exc))
            else:
                self._end_at(sent_at.after(self._ttl))

    async def release(self) -> None:
        """Give the table back. A store that is away lets the lease run out by itself."""
        with contextlib.suppress(LeaseLost, StateError):
            await self._state.release_lease(self._lease)

    def _end_at(self, when: Moment) -> None:
        self._ends = when
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(when.by_loop)


@contextlib.asynccontextmanager
async def lease(state: StateStore, table: str, owner: str, ttl: timedelta) -> AsyncIterator[HeldLease]:
    """Claim the table for the time of one cycle, or refuse because somebody else works on it."""
    sent_at = Moment.now()
    claimed = await state.acquire_lease(table, owner, ttl)
    if claimed is None:
        raise Refused(
            RefusalCode.BUSY, f"{table} is being cleaned by another process; if that dies, its lease expires by itself"
        )
    held = HeldLease(state, claimed, ttl, sent_at)
    beat = asyncio.create_task(held.heartbeat(), name=f"heartbeat {table}")
    try:
        yield held
    finally:
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beat
        await held.release()
