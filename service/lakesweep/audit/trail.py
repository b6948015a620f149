"""Record what one run does in its table's audit trail. `audit.records` defines the records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pyarrow as pa
import structlog

from lakesweep.audit import chain, records
from lakesweep.audit.chain_writer import ChainWriter
from lakesweep.audit.records import Circumstances
from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.state import BatchRecord

log = structlog.get_logger()


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

    async def deleted(self, batch: BatchRecord, fates: pa.RecordBatch) -> None:
        await self._append(await asyncio.to_thread(records.deleted_lines, batch, fates))

    async def restoring(self, batch: BatchRecord, rows: pa.RecordBatch) -> None:
        await self._append(records.restoring_lines(batch, rows))

    async def restored(self, batch: BatchRecord, rows: pa.RecordBatch) -> None:
        await self._append(records.restored_lines(batch, rows))

    async def end(self, run: CleanupRun) -> None:
        """The end of a run, or all of a refused one. The newest digest is also logged, as evidence in another place."""
        if self._beginning is None:
            await self.begin(run)
        await self._append(chain.lines([records.end_record(run)]))
        await self.chain.witness()
        if self.chain.end is not None:
            log.info("audit_recorded", segment=self.chain.end.number, digest=self.chain.end.digest)

    async def _append(self, lines: bytes) -> None:
        async with self._lock:
            header = await self.chain.append((self._beginning or b"") + lines)
            self._beginning = b""
        await self.chain.remember(header)  # the next segment need not wait for this
