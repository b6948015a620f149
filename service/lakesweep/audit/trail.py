"""Write one run's part of a table's audit trail. Creates segments, never overwrites or deletes one.

The state store says where the chain ends; what stands behind that (a crash came between a segment and its header)
is read and taken up. A segment's place is taken by a create-only write, so of two writers one goes behind the other
and the chain never forks. An answer that was lost is no trouble: a place that holds our own bytes is ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import pyarrow as pa

from lakesweep.cleanup import audit, segments
from lakesweep.cleanup.audit import Circumstances
from lakesweep.cleanup.ports import Clock
from lakesweep.cleanup.records import AuditHeader, BatchRecord, StateStore
from lakesweep.cleanup.segments import Link
from lakesweep.cleanup.storage_ports import Storage, Writer
from lakesweep.model.errors import AlreadyThere, AuditFailed, StorageError, Unavailable
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan

_ATTEMPTS = 3
"""Tries of one write. A batch waits meanwhile, so a store that is away is soon told."""
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The last segment of a chain; number 0 of an empty one."""

    number: int
    digest: str | None


@dataclass(kw_only=True)
class Trail:
    """The Audit port over a store. One per run; may be used by several tasks at once."""

    artifacts: Location
    table: str
    run_id: str
    about: Circumstances
    storage: Storage
    writer: Writer
    state: StateStore
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _end: _End | None = field(init=False, default=None)
    _first: int = field(init=False, default=0)
    """Number of the run's first segment; 0 until there is one."""
    _beginning: bytes | None = field(init=False, default=None)
    """Goes in with the first change, since nothing happens before it. None until the run begins."""

    async def begin(self, run: CleanupRun) -> None:
        """Who, why and on which plan, with the approvals that hold now."""
        now = self.clock.now()
        approvals = [one for one in await self.state.approvals(self.table) if now < one.expires_at]
        self._beginning = segments.lines([audit.begin_record(run, self.about, approvals)])

    async def expiring(self, plan: ExpiryPlan) -> None:
        """Before the commit."""
        await self._append(segments.lines([audit.expiry_record("expiring", plan)]))

    async def expired(self, plan: ExpiryPlan) -> None:
        """After the commit."""
        await self._append(segments.lines([audit.expiry_record("expired", plan)]))

    async def deleting(self, batch: BatchRecord, going: pa.RecordBatch, spared: pa.RecordBatch) -> None:
        """Before a batch."""
        await self._append(await asyncio.to_thread(audit.deleting_lines, batch, going, spared))

    async def deleted(self, batch: BatchRecord, fates: pa.RecordBatch) -> None:
        """After a batch."""
        await self._append(await asyncio.to_thread(audit.deleted_lines, batch, fates))

    async def end(self, run: CleanupRun) -> None:
        """The end. A run that was refused begins here too."""
        if self._beginning is None:
            await self.begin(run)
        await self._append(segments.lines([audit.end_record(run)]))

    async def _append(self, lines: bytes) -> None:
        async with self._lock:
            try:
                written = await self._write((self._beginning or b"") + lines)
            except StorageError as exc:
                raise AuditFailed(f"{exc.address}: the audit trail cannot be written ({exc.why}): {_LAW}") from exc
            self._end, self._beginning = written, b""
            self._first = self._first or written.number
            header = AuditHeader(
                run_id=self.run_id,
                table=self.table,
                first=self._first,
                last=written.number,
                digest=written.digest or "",
            )
        # The next segment need not wait for this: of two headers the store keeps the one that goes further.
        await self.state.set_audit(header)

    async def _write(self, lines: bytes) -> _End:
        end = self._end or await self._find_end()
        while True:
            link = Link(
                table=self.table,
                number=end.number + 1,
                previous=end.digest,
                run_id=self.run_id,
                at=self.clock.now(),
            )
            # Many lines take longer to hash than the event loop may be held.
            data, digest = await asyncio.to_thread(link.sealed, lines)
            written = _End(number=link.number, digest=digest)
            taken_by = await self._take(link.number, data)
            if taken_by is None:
                return written
            end = _End(number=link.number, digest=segments.digest(taken_by))

    async def _take(self, number: int, data: bytes) -> bytes | None:
        """Create a segment; what stands in its place instead, if it is another's."""
        place = segments.segment_place(self.artifacts, self.table, number)
        failures = 0
        while True:
            try:
                await self.writer.put(place, data, create_only=True)
            except AlreadyThere:
                found = await self.storage.read(place)
                return None if found == data else found
            except Unavailable:
                failures += 1
                if failures >= _ATTEMPTS:
                    raise
                await self.sleep(_PAUSE_SECONDS * failures)
            else:
                return None

    async def _find_end(self) -> _End:
        """Where the chain ends as far as the state store knows, or, if it knows nothing, the store itself."""
        header = await self.state.audit_head(self.table)
        if header is not None:
            return _End(number=header.last, digest=header.digest)
        number = 0
        async with aclosing(self.storage.list(segments.directory(self.artifacts, self.table))) as batches:
            async for batch in batches:
                names = (path.rpartition("/")[2] for path in batch.column("path").to_pylist())
                number = max([number, *(segments.segment_number(name) or 0 for name in names)])
        if not number:
            return _End(number=0, digest=None)
        newest = await self.storage.read(segments.segment_place(self.artifacts, self.table, number))
        return _End(number=number, digest=segments.digest(newest))


_LAW = "nothing is deleted without its record"
