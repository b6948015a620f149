"""The last check before a request to delete is sent; its answer may end the sweep.

Between reading the head at the start of a batch and sending its requests come the audit record, the journal, a store
that throttles, and perhaps a machine that was suspended. So a deleter checks here once more, for every request and
every retry: has the table moved on, is it on hold, was the run stopped? And when the request is ready to be sent,
without waiting for anything: is the lease still ours?
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lakesweep import aio
from lakesweep.aio import interruption
from lakesweep.cleanup import addresses
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import Candidate, StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleted, DeleteStatus, not_sent
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage, stat_or_none
from lakesweep.ports.table import MatchBy

Revalidate = Callable[[], Awaitable[frozenset[str]]]
"""Match keys of everything that became referenced after the plan was made; a bare name stands for every object that
is called so. Raises when the table must be left."""
Recheck = Callable[[Sequence[Candidate]], Awaitable[tuple[frozenset[str], frozenset[str]]]]
"""See `verify_unchanged`."""

REFERENCED = "referenced again since the plan was made"
_AT_ONCE = 32
_PRECISION = timedelta(seconds=1)
"""Stores and inventories round times to seconds. So an object that was replaced within the same second
looks unchanged."""


class Shared:
    """One read shared by all concurrent callers. A result counts only for callers that came before the read was
    started: a caller that comes while it is under way waits for the next one."""

    def __init__(self, read: Revalidate) -> None:
        self._read = read
        self._turn = asyncio.Lock()
        self._requested = 0
        self._answered = 0
        self._answer: frozenset[str]

    async def __call__(self) -> frozenset[str]:
        """The result of a read that was started after this call began."""
        self._requested += 1
        mine = self._requested
        async with self._turn:
            if self._answered < mine:
                until = self._requested
                self._answer = await self._read()
                self._answered = until
            return self._answer


class HeadReads:
    """Reads the table during a sweep, one read after the other. A request to delete always needs a new read. A batch
    uses the read that was made after the previous batch was journalled, so it takes one read, not two."""

    def __init__(self, read: Revalidate) -> None:
        self._read = read
        self._turn = asyncio.Lock()
        self._period = 0
        self._found: frozenset[str] | None = None
        self._taken = asyncio.Event()

    async def new(self) -> frozenset[str]:
        """What is referenced now. For a request, no earlier answer counts."""
        async with self._turn:
            period = self._period
            found = await self._read()
            if period == self._period:
                self._found = found
                self._taken.set()
            return found

    def begin_batch(self) -> None:
        """A batch was journalled: for the next one, only reads from now on count."""
        self._period += 1
        self._found = None
        self._taken.clear()

    async def since_last_batch(self, last: asyncio.Task[None] | None) -> frozenset[str]:
        """The read that the last batch made; a new one if it made none."""
        if last is not None and self._found is None:
            taken = asyncio.create_task(self._taken.wait(), name="wait for a read")
            try:
                await asyncio.wait({taken, last}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                taken.cancel()
        return await self.new() if self._found is None else self._found


@dataclass(kw_only=True)
class LastCheck:
    """One per sweep; `about` gives the deleter of a batch what it has to check."""

    revalidate: Revalidate
    """Reads the table again for each call, and checks whether it is on hold by now."""
    match_by: MatchBy
    fence: Fence
    stop: asyncio.Event
    sending: Callable[[Sequence[str]], None] | None = None
    """Called with the paths of each request that nothing withholds, before it is sent."""
    ended_by: LakesweepError | None = None

    def about(self, etags: Mapping[str, str], written_ms: Mapping[str, int] | None = None) -> BatchConditions:
        """For one batch. Etags, or times where there are none, are those of the objects that were judged, by path."""
        return BatchConditions(self, etags, written_ms or {})

    def check(self) -> None:
        """Waits for nothing. Raises when nothing may be sent any more; from then on it always raises."""
        if self.ended_by is not None:
            raise self.ended_by
        self.fence.check_time()
        if self.stop.is_set():
            raise interruption(self.stop)


class BatchConditions:
    """The Conditions of one batch: the sweep's last check in the form that a deleter needs."""

    def __init__(self, last_check: LastCheck, etags: Mapping[str, str], written_ms: Mapping[str, int]) -> None:
        self._last_check = last_check
        self._look = Shared(last_check.revalidate)  # a store that takes few keys at once has many requests under way
        self.etags = etags
        self.written_ms = written_ms

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        """Those that must not be sent. If anything is unknown, all of them are kept and the sweep ends."""
        try:
            self._last_check.check()
            spared = still_referenced(paths, await self._look(), self._last_check.match_by)
        except LakesweepError as exc:
            self._last_check.ended_by = self._last_check.ended_by or exc
            return {path: not_sent(path, str(exc)) for path in paths}
        if self._last_check.sending is not None:
            self._last_check.sending([path for path in paths if path not in spared])
        return {path: Deleted(path=path, status=DeleteStatus.SPARED, why=REFERENCED) for path in spared}

    def ended(self) -> str | None:
        try:
            self._last_check.check()
        except LakesweepError as exc:
            self._last_check.ended_by = self._last_check.ended_by or exc
            return str(exc)
        return None


def still_referenced(paths: Sequence[str], referenced: frozenset[str], match_by: MatchBy) -> frozenset[str]:
    """Those that something references, by match key or, where every object of a name is meant, by name."""
    if not referenced:
        return frozenset()
    keys, names = (addresses.match_key_list(paths, by) for by in (match_by, MatchBy.NAME))
    return frozenset(
        path for path, key, name in zip(paths, keys, names, strict=True) if key in referenced or name in referenced
    )


async def verify_unchanged(storage: Storage, rows: Sequence[Candidate]) -> tuple[frozenset[str], frozenset[str]]:
    """Which candidates are another object by now than the one that was judged, and which are gone, by path. Raises what
    storage raises: then nothing is known.

    A plan made from an inventory judges objects by a list that is hours old. One that was rewritten since may belong to
    a writer that has not committed yet, and nothing references it either. Only an object of the same size, the same
    time and, where both are known, the same etag is the one that was judged.
    """

    async def look(row: Candidate) -> StoredObject | None:
        return await stat_or_none(storage, Location.parse(row.path))

    found = list(zip(rows, await aio.gather_bounded(rows, look, limit=_AT_ONCE), strict=True))
    changed = frozenset(row.path for row, stored in found if stored is not None and not unchanged(row, stored))
    return changed, frozenset(row.path for row, stored in found if stored is None)


def unchanged(row: Candidate, stored: StoredObject) -> bool:
    if row.modified_at is None or stored.modified_at is None:
        return False
    same_etag = row.etag is None or stored.etag is None or row.etag == stored.etag
    same_time = abs(row.modified_at - stored.modified_at) < _PRECISION
    return row.size_bytes == stored.size_bytes and same_etag and same_time
