"""What all tables together may do at one time, how much of it one tenant may have, and which table runs next."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count


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

    async def __aexit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One table that could be started now."""

    tenant: str
    table: str
    since: datetime
    requested: bool = False
    """By a person: it is started before the tenant's tables that are only due."""


class FairQueue:
    """Decides whose turn it is: fair between tenants, then the table that has waited longest. Remembers only turns.

    The tenant with the fewest tables under way goes first; of several, the one whose last turn is longest ago. So a
    tenant with three tables waits for one turn of each other tenant, however many tables those have or runs people
    request. Inside a tenant, what a person requested goes before what is due.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._last_turn: dict[str, int] = {}

    def choose(
        self, due: Iterable[Due], running: Mapping[str, int], free: int, most_per_tenant: int | None = None
    ) -> list[Due]:
        """At most `free` of the due tables, in the order in which they are to start. `running` counts by tenant. No
        tenant gets more than `most_per_tenant`, running ones included."""
        waiting: dict[str, list[Due]] = {}
        for one in due:
            waiting.setdefault(one.tenant, []).append(one)
        for tables in waiting.values():
            tables.sort(key=lambda one: (not one.requested, one.since, one.table), reverse=True)
        busy = Counter(running)
        chosen: list[Due] = []
        while waiting and len(chosen) < free:
            if most_per_tenant is not None:
                waiting = {name: tables for name, tables in waiting.items() if busy[name] < most_per_tenant}
                if not waiting:
                    break
            tenant = min(waiting, key=lambda name: (busy[name], self._last_turn.get(name, 0), name))
            chosen.append(waiting[tenant].pop())
            self._last_turn[tenant] = next(self._numbers)
            busy[tenant] += 1
            if not waiting[tenant]:
                del waiting[tenant]
        return chosen
