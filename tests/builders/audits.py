"""Small audit trails: a run that expires, deletes two batches and ends, recorded by the real Trail."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from tests.builders.stores import StorageSpec

from lakesweep.audit.inspect import Inspector
from lakesweep.audit.records import Circumstances
from lakesweep.audit.trail import ChainWriter, Trail
from lakesweep.cleanup import plan_file
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.files import Candidate, DeletionReport, FailedDelete, OrphanPlan, Reason, Tally
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.model.snapshot import ExpiryPlan, Snapshot
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.audit import DELETE_RESULTS_SCHEMA
from lakesweep.ports.state import BatchRecord, BatchState
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage.registry import open_storage, open_writer

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="orders", format=FormatName.ICEBERG)
KEY = b"the key of the tests' audit trails"
ABOUT = Circumstances(
    trigger=Trigger(by=TriggeredBy.COMMAND, who="ada"),
    worker="host:1",
    fencing_token=7,
    settings_digest="5e77",
    version="0.1.0",
)


class TickingClock:
    """Each look is a second later."""

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        self.moment += timedelta(seconds=1)
        return self.moment


def candidate(path: str, size_bytes: int = 7, **changes) -> Candidate:
    row = Candidate(
        path=path, size_bytes=size_bytes, modified_at=NOON, etag="e1", kind="data", reason=Reason.UNREFERENCED
    )
    return replace(row, **changes)


def rows_of(*candidates: Candidate) -> pa.RecordBatch:
    """Rows of a plan."""
    return pa.RecordBatch.from_pylist([asdict(one) for one in candidates], schema=plan_file.PLAN_SCHEMA)


def results_of(*results: tuple[str | None, ...], size_bytes: int = 7) -> pa.RecordBatch:
    """Results of deletes: path, status, and optionally what the store said, where it went, its marker."""
    rows = [(path, size_bytes, status, *more) for path, status, *more in results]
    return pa.RecordBatch.from_pylist(
        [dict(zip(DELETE_RESULTS_SCHEMA.names, row, strict=False)) for row in rows], schema=DELETE_RESULTS_SCHEMA
    )


def batch(number: int, count: int, run_id: str = "r1") -> BatchRecord:
    return BatchRecord(
        run_id=run_id, number=number, first=number * count, count=count, state=BatchState.INTENT, fencing_token=7
    )


def a_run(run_id: str = "r1", ref: TableRef = REF, **changes) -> CleanupRun:
    plan = OrphanPlan(
        head="h1",
        cutoff=NOON,
        verdicts={},
        candidates=Tally(files=4, bytes=28),
        by_kind={},
        by_reason={},
        missing=(),
        missing_count=0,
        references=1,
        matched=1,
        rows_path="/plan",
        digest="d1",
        engine="inprocess",
    )
    run = CleanupRun(id=run_id, table=ref, location="s3://lake/acme/orders", started_at=NOON, head="h1", plan=plan)
    return replace(run, **changes)


class Shelf:
    """A place for trails, with a state store beside it."""

    def __init__(self, artifacts: Location, spec: StorageSpec | None = None, state=None) -> None:
        self.artifacts = artifacts
        self.clock = TickingClock()
        self.key = KEY
        self.state = state or MemoryStateStore(self.clock)
        self.spec = spec or StorageSpec(attempts=1)
        self.anchor: Location | None = None
        self.storage = open_storage(self.spec)
        self.writer = open_writer(self.spec)
        self.pauses: list[float] = []

    async def aclose(self) -> None:
        await self.storage.aclose()
        await self.writer.aclose()

    def trail(self, run_id: str = "r1", ref: TableRef = REF) -> Trail:
        async def no_wait(seconds: float) -> None:
            self.pauses.append(seconds)

        chain = ChainWriter(
            artifacts=self.artifacts,
            table=ref.label,
            run_id=run_id,
            key=self.key,
            storage=self.storage,
            writer=self.writer,
            state=self.state,
            clock=self.clock,
            anchor=self.anchor,
            sleep=no_wait,
        )
        return Trail(chain=chain, about=ABOUT)

    @property
    def inspector(self) -> Inspector:
        return Inspector(
            artifacts=self.artifacts, key=self.key, storage=self.storage, state=self.state, anchor=self.anchor
        )

    async def record_run(self, run_id: str = "r1", ref: TableRef = REF) -> None:
        """A whole run: 2 deleted, 1 spared, 1 already gone, 1 failed."""
        trail, run = self.trail(run_id, ref), a_run(run_id, ref)
        await trail.begin(run)
        expiry = ExpiryPlan(head="h1", expire=(Snapshot(id="12345678901234567890", committed_at=NOON),))
        await trail.expiring(expiry)
        await trail.expired(expiry)
        rows = [candidate(f"s3://lake/acme/orders/data/{number}.parquet") for number in range(5)]
        await trail.deleting(batch(0, 3, run_id), rows_of(*rows[:2]), rows_of(rows[2]))
        await trail.deleted(batch(0, 3, run_id), results_of(*((row.path, "deleted") for row in rows[:2])))
        await trail.deleting(batch(1, 2, run_id), rows_of(*rows[3:]), rows_of())
        await trail.deleted(
            batch(1, 2, run_id),
            results_of((rows[3].path, "already_gone"), (rows[4].path, "failed", "AccessDenied")),
        )
        deletion = DeletionReport(
            deleted=Tally(files=2, bytes=14),
            already_gone=1,
            failed=(FailedDelete(path=rows[4].path, why="AccessDenied"),),
        )
        await trail.end(replace(run, outcome=Outcome.FAILED, reason="1 object", deletion=deletion, spared=1))

    async def findings(self, table: str | None = None):
        return [found async for found in self.inspector.verify(table)]

    async def faults(self) -> list[str]:
        return [fault for found in await self.findings() for fault in found.faults]
