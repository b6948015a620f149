"""What test_state_store.py and its neighbours are made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import BatchRecord, BatchState

TABLE = TableRef(tenant=TenantId("acme"), dataset="prod", name="events", format=FormatName.ICEBERG)


NOON = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


MINUTE = timedelta(minutes=1)


def a_run(run_id="r1", table=TABLE, started_at=NOON, **changes):
    return CleanupRun(id=run_id, table=table, location="s3://lake/acme/events", started_at=started_at, **changes)


def a_batch(number=0, token=1, run_id="r1", **changes):
    batch = BatchRecord(
        run_id=run_id, number=number, first=number * 10, count=10, state=BatchState.INTENT, fencing_token=token
    )
    return replace(batch, **changes)


async def lease_with_run(store, run_id="r1"):
    await store.start_run(a_run(run_id))
    lease = await store.acquire_lease(TABLE.label, "worker", MINUTE)
    assert lease
    return lease
