"""Which table runs next: fair between tenants, then the table that has waited longest. Pure, and remembers only turns.

The tenant with the fewest tables under way goes first; of several, the one whose last turn is longest ago. So a
tenant with three tables waits for one turn of each other tenant, however many tables those have or runs people request.
Inside a tenant, what a person requested goes before what is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """One table that could be started now."""

    tenant: str
    table: str
    since: datetime
    requested: bool = False
    """By a person: it goes before the tenant's tables that are only due."""


class FairQueue:
    """Gives out turns. One instance lives as long as the scheduler."""

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
