"""Record what one run does in its table's audit trail: `Trail` says what, `ChainWriter` appends segments to the chain.

Segments are created, never overwritten or deleted. `audit.records` defines the records.

The state store knows where the chain ends. Later segments are accepted if they have the installation's signature and
continue the chain: a crash came between a segment and its header, or another process wrote it. Any other segment was
planted: it is skipped, logged, and shown by `lakesweep audit verify`. Segments are created with create-only writes, so
of two writers one continues after the other and the chain never forks. A lost response does no harm: a segment with our
own bytes is ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import pyarrow as pa
import structlog

from lakesweep.audit import chain, records
from lakesweep.audit.chain import Broken, Link, Segment
from lakesweep.audit.records import Circumstances
from lakesweep.model.errors import AlreadyThere, AuditFailed, StorageError
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import AuditHeader, BatchRecord, StateStore
from lakesweep.ports.storage import Storage, Writer
from lakesweep.retry import Backoff

log = structlog.get_logger()

ATTEMPTS = 3
"""Attempts of one write. A batch waits meanwhile, so an unavailable store is reported soon."""
_FIRST_PAUSE_SECONDS = 1.0
_MOST_PASSED_OVER = 1000
"""The most planted segments in a row that are skipped. With more, a person has to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last segment of a chain; number 0 for an empty one."""

    number: int
    digest: str | None


@dataclass(kw_only=True)
class ChainWriter:
    """One chain, for one run or one event. Used by one task at a time."""

    artifacts: Location
    table: str
    run_id: str
    key: bytes
    """Signs every segment; see `state.installation_key`."""
    storage: Storage
    writer: Writer
    state: StateStore
    clock: Clock
    anchor: Location | None = None
    """A location with an object lock, where the newest digest is anchored at the end of a run."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    end: End | None = field(init=False, default=None)
    _first: int = field(init=False, default=0)
    """Number of the run's first segment; 0 until there is one."""

    async def append(self, lines: bytes) -> AuditHeader:
        """Append a segment. Raises AuditFailed if it is not safely stored. Returns the header for `remember`."""
        try:
            self.end = written = await self._write(lines)
        except StorageError as exc:
            raise AuditFailed(f"{exc.address}: the audit trail cannot be written ({exc.why}): {_LAW}") from exc
        self._first = self._first or written.number
        return AuditHeader(
            run_id=self.run_id, table=self.table, first=self._first, last=written.number, digest=written.digest or ""
        )

    async def write_anchor(self) -> None:
        """Write the newest digest to the anchor, if there is one, where nobody can change it. Raises AuditFailed."""
        if self.anchor is None or self.end is None:
            return
        name = f"{self.end.number:010}-{self.end.digest}"
        try:
            await self.writer.put(chain.directory(self.anchor, self.table).join(name), b"", create_only=True)
        except AlreadyThere:
            pass
        except StorageError as exc:
            raise AuditFailed(f"{exc.address}: the anchor of the audit trail cannot be written ({exc.why})") from exc

    async def remember(self, header: AuditHeader) -> None:
        """Record the end of the chain in the state store. Of two headers it keeps the one that goes further."""
        await self.state.set_audit(header)

    async def _write(self, lines: bytes) -> End:
        end = self.end or await self._find_end()
        passed_over = 0
        while True:
            link = Link(
                table=self.table,
                number=end.number + passed_over + 1,
                previous=end.digest,
                run_id=self.run_id,
                at=self.clock.now(),
                passed_over=passed_over,
            )
            # Hashing many lines would block the event loop for too long.
            data, digest = await asyncio.to_thread(link.sealed, lines, self.key)
            taken_by = await self._take(link.number, data)
            if taken_by is None:
                return End(number=link.number, digest=digest)
            if self._continues(taken_by, link):
                end, passed_over = End(number=link.number, digest=chain.digest(taken_by)), 0
            else:
                passed_over = self._pass_over(link.number, passed_over)

    def _continues(self, data: bytes, link: Link) -> bool:
        """Is it a segment of this chain that another process of this installation wrote?"""
        if not chain.is_signed(data, self.key):
            return False
        try:
            found = Segment.decode(data)
        except Broken:
            return False
        return (found.table, found.number, found.previous) == (self.table, link.number, link.previous)

    def _pass_over(self, number: int, passed_over: int) -> int:
        place = chain.segment_place(self.artifacts, self.table, number).raw
        log.error("audit_segment_rejected", address=place, reason="not written by this installation")
        if passed_over >= _MOST_PASSED_OVER:
            raise StorageError(place, f"{passed_over} segments of another installation are in the way")
        return passed_over + 1

    async def _take(self, number: int, data: bytes) -> bytes | None:
        """Create a segment. Returns the existing segment if another writer has taken the number."""
        place = chain.segment_place(self.artifacts, self.table, number)
        tries = Backoff(ATTEMPTS, self.sleep, first=_FIRST_PAUSE_SECONDS)
        try:
            await tries.call(lambda: self.writer.put(place, data, create_only=True))
        except AlreadyThere:  # perhaps our own, from an attempt whose response was lost
            found = await self.storage.read(place)
            return None if found == data else found
        return None

    async def _find_end(self) -> End:
        """The end of the chain according to the state store, or, if that knows nothing, according to storage."""
        header = await self.state.audit_head(self.table)
        if header is not None:
            return End(number=header.last, digest=header.digest)
        number = 0
        async with aclosing(self.storage.list(chain.directory(self.artifacts, self.table))) as batches:
            async for batch in batches:
                names = (path.rpartition("/")[2] for path in batch.column("path").to_pylist())
                number = max([number, *(chain.segment_number(name) or 0 for name in names)])
        if not number:
            return End(number=0, digest=None)
        newest = await self.storage.read(chain.segment_place(self.artifacts, self.table, number))
        return End(number=number, digest=chain.digest(newest))


_LAW = "nothing is deleted without an audit record"


@dataclass(kw_only=True)
class Trail:
    """The Audit port over a chain of segments. One per run; may be used by several tasks at once."""

    chain: ChainWriter
    about: Circumstances
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _beginning: bytes | None = field(init=False, default=None)
    """Written together with the first change, because nothing happens before it. None until the run begins."""

    async def begin(self, run: CleanupRun) -> None:
        now = self.chain.clock.now()
        approvals = [one for one in await self.chain.state.approvals(self.chain.table) if now < one.expires_at]
        self._beginning = chain.lines([records.begin_record(run, self.about, approvals)])

    async def expiring(self, plan: ExpiryPlan) -> None:
        await self._append(chain.lines([records.expiry_record("expiring", plan)]))

    async def expired(self, plan: ExpiryPlan) -> None:
        await self._append(chain.lines([records.expiry_record("expired", plan)]))

    async def deleting(self, batch: BatchRecord, going: pa.RecordBatch, spared: pa.RecordBatch) -> None:
        await self._append(await asyncio.to_thread(records.deleting_lines, batch, going, spared))

    async def deleted(self, batch: BatchRecord, results: pa.RecordBatch) -> None:
        await self._append(await asyncio.to_thread(records.deleted_lines, batch, results))

    async def restoring(self, batch: BatchRecord, rows: pa.RecordBatch) -> None:
        await self._append(records.restoring_lines(batch, rows))

    async def restored(self, batch: BatchRecord, rows: pa.RecordBatch) -> None:
        await self._append(records.restored_lines(batch, rows))

    async def end(self, run: CleanupRun) -> None:
        """The end of a run, or all of a refused one. The newest digest is also logged, as evidence in another place."""
        if self._beginning is None:
            await self.begin(run)
        await self._append(chain.lines([records.end_record(run)]))
        await self.chain.write_anchor()
        if self.chain.end is not None:
            log.info("audit_recorded", segment=self.chain.end.number, digest=self.chain.end.digest)

    async def _append(self, lines: bytes) -> None:
        async with self._lock:
            header = await self.chain.append((self._beginning or b"") + lines)
            self._beginning = b""
        await self.chain.remember(header)  # the next segment need not wait for this
