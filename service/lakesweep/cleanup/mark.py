"""Read the table again once the listing is complete: whatever was committed meanwhile counts as live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from lakesweep.model.errors import CommitConflict, Indeterminate, Unreadable
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.requests import Requests
from lakesweep.model.run import SharedFiles
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.engine import Marked
from lakesweep.ports.state import StateStore
from lakesweep.ports.surroundings import Surroundings
from lakesweep.ports.table import Table, TableView
from lakesweep.telemetry.requests import RequestCount

T = TypeVar("T")

_ATTEMPTS = 4
"""A table that is committed to faster than its lists can be read is left to the next cycle."""


async def unless_overtaken(read: Callable[[], Awaitable[T]]) -> T:
    """Read a table; start again if a commit removed in the meantime what was to be read."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(CommitConflict):
            return await read()
    return await read()


@dataclass(kw_only=True)
class Marking:
    """What an engine calls when it has listed everything."""

    table: Table
    state: StateStore
    policy: CleanupPolicy
    now: datetime
    surroundings: Surroundings
    shared_files: tuple[SharedFiles, ...] = ()
    """Files of this table that other tables use, as last read."""
    requests: RequestCount = field(default_factory=RequestCount)
    loading: Requests = field(default_factory=Requests)
    """The part of `requests` that the last load of the table took."""
    _result: tuple[Marked, ExpiryPlan] | None = None

    async def __call__(self) -> Marked:
        return await unless_overtaken(self._mark)

    async def look_at(self, state: TableView) -> tuple[Marked, ExpiryPlan]:
        """The same for a state loaded before, or the newest if that is gone. It says nothing about later commits."""
        try:
            await self._mark_at(state, own_later=False)
        except (CommitConflict, Unreadable):
            if await self.table.head() == state.head:
                raise
            await self()
        return self.result()

    async def _mark(self) -> Marked:
        before = self.requests.so_far
        state = await self.table.load()
        self.loading = self.requests.so_far - before
        return await self._mark_at(state, own_later=True)

    async def _mark_at(self, state: TableView, *, own_later: bool) -> Marked:
        table = self.table
        expiry = state.plan_expiry(self.policy, self.now)
        pending = await self.state.pending_expiry(table.ref.label)
        before = await table.load_at(pending, state) if pending and pending != state.head else None
        references = await state.references(expiry, before)
        # After the references: what another table took over from this one until now is among them.
        shared = await self.surroundings.shared_files(state, own_later=own_later)
        self.shared_files = tuple(
            SharedFiles(table=other, files=len(some), first=some[0]) for other, some in shared.items()
        )
        paths = (path for some in shared.values() for path in some)
        references = replace(references, tolerated=(*references.tolerated, *paths))
        marked = Marked(state=state, references=references)
        self._result = (marked, expiry)
        return marked

    async def is_outdated(self) -> bool:
        return self._result is not None and await self.table.head() != self._result[0].state.head

    def result(self) -> tuple[Marked, ExpiryPlan]:
        if self._result is None:
            raise Indeterminate("the engine finished without reading any reference")
        return self._result
