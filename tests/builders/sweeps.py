"""What test_sweep.py and its neighbours are made of."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from tests.builders.audits import Shelf
from tests.builders.surroundings import Alone

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.sweep import Sweep
from lakesweep.model.errors import LeaseLost
from lakesweep.model.files import OrphanPlan, Tally
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.deleter import Deleted, DeleteStatus
from lakesweep.ports.table import MatchBy
from lakesweep.state.memory import MemoryStateStore

NOW = datetime(2026, 5, 1, tzinfo=UTC)


REF = TableRef(tenant=TenantId("acme"), dataset="shop", name="orders", format=FormatName.ICEBERG)


class FixedClock:
    def now(self):
        return NOW


class RecordingDeleter:
    """A real Deleter over a set of names; keeps the order of what it was asked."""

    def __init__(self, objects, failing=()):
        self.objects = set(objects)
        self.failing = set(failing)
        self.asked = []

    async def delete(self, paths, conditions=None):
        await asyncio.sleep(0)
        self.asked.append(list(paths))
        return [self._one(path) for path in paths]

    async def remove_empty_directories(self, root, directories):
        return 0

    async def aclose(self):
        pass

    def _one(self, path):
        if path in self.failing:
            return Deleted(path=path, status=DeleteStatus.FAILED, why="AccessDenied")
        if path not in self.objects:
            return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
        self.objects.remove(path)
        return Deleted(path=path, status=DeleteStatus.DELETED)


class Held:
    def __init__(self):
        self.token = 1
        self.lost_after = None
        self.checks = 0

    async def check(self):
        self.checks += 1
        if self.lost_after is not None and self.checks > self.lost_after:
            raise LeaseLost("acme/shop/orders is owned by another worker")

    def check_time(self):
        pass


def paths(count, stage=0):
    return [(f"s3://b/t/data/{stage}-{number:05}.parquet", stage) for number in range(count)]


async def make_sweep(
    tmp_path, rows, *, batch_size=10, concurrent=3, deleter=None, fence=None, revalidate=None, audit=None
):
    rows_path = str(tmp_path / "plan.parquet")
    with plan_file.PlanWriter(rows_path) as writer:
        writer.write(
            pa.RecordBatch.from_pylist(
                [
                    {
                        "path": path,
                        "size_bytes": 7,
                        "modified_at": NOW,
                        "etag": None,
                        "kind": f"kind{stage}",
                        "reason": "unreferenced",
                        "stage": stage,
                    }
                    for path, stage in rows
                ],
                schema=plan_file.PLAN_SCHEMA,
            )
        )
    state = MemoryStateStore(FixedClock())
    await state.start_run(CleanupRun(id="r1", table=REF, location=None, started_at=NOW))
    fence = fence or Held()
    fence.token = (await state.acquire_lease(REF.label, "me", timedelta(hours=1))).token

    async def nothing_new():
        return frozenset()

    return Sweep(
        run_id="r1",
        plan=OrphanPlan(
            head="h",
            cutoff=NOW,
            verdicts={},
            candidates=Tally(files=len(rows)),
            by_kind={},
            by_reason={},
            missing=(),
            missing_count=0,
            references=1,
            matched=1,
            rows_path=rows_path,
            digest=writer.digest,
            engine="inprocess",
        ),
        match_by=MatchBy.ADDRESS,
        policy=CleanupPolicy(batch_size=batch_size, max_concurrent_deletions=concurrent),
        deleter=deleter or RecordingDeleter(path for path, _ in rows),
        journal=state,
        audit=audit or Shelf(Location.parse(f"memory://{uuid.uuid4().hex}/audit"), state=state).trail("r1", REF),
        fence=fence,
        revalidate=revalidate or nothing_new,
        check_not_held=Alone().check_not_held,
        stop=asyncio.Event(),
        progress=lambda _: None,
    )
