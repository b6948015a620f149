"""The state store on SQL. Every method is one short transaction with its query in plain sight.

Decisions about leases and the journal are in `laws.py`; here rows are locked, read and written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lakesweep.cleanup.records import Approval, BatchRecord, BatchState, DueTime, Hold, LedgerHeader, PlanHeader
from lakesweep.cleanup.report import run_document
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun, Lease
from lakesweep.state import laws
from lakesweep.state.access import SqlAccess
from lakesweep.state.schema import (
    approvals,
    batches,
    due_times,
    holds,
    leases,
    ledgers,
    pending_expiries,
    plans,
    runs,
)
from lakesweep.state.transactions import transaction

_ROWS_AT_ONCE = 250
"""Of a long answer; between two parts others get their turn."""


class SqlStateStore(SqlAccess):
    """The StateStore port on SQLite or PostgreSQL."""

    # Runs

    @transaction
    async def start_run(self, connection: AsyncConnection, run: CleanupRun) -> None:
        """Record a new run."""
        if not await self.database.insert_new(connection, runs, _run_row(run)):
            raise StateError(f"run {run.id} is already recorded")

    @transaction
    async def update_run(self, connection: AsyncConnection, run: CleanupRun) -> None:
        """Replace what is known of a run."""
        result = await connection.execute(sa.update(runs).where(runs.c.id == run.id).values(_run_row(run)))
        if result.rowcount == 0:
            raise StateError(f"run {run.id} is not recorded")

    @transaction
    async def get_run(self, connection: AsyncConnection, run_id: str) -> dict[str, Any] | None:
        """A run as its JSON document."""
        found = await connection.execute(sa.select(runs.c.document).where(runs.c.id == run_id))
        return found.scalar_one_or_none()

    @transaction
    async def list_runs(
        self,
        connection: AsyncConnection,
        *,
        table: str | None = None,
        tenants: Collection[str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Newest first. Nothing is older than a run that is not there."""
        query = sa.select(runs.c.document).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(runs.c.table == table)
        if tenants is not None:
            query = query.where(runs.c.tenant.in_(tenants))
        if before is not None:
            seen = sa.select(runs.c.started_at, runs.c.id).where(runs.c.id == before)
            query = query.where(sa.tuple_(runs.c.started_at, runs.c.id) < seen.scalar_subquery())
        return list((await connection.execute(query)).scalars())

    @transaction
    async def open_runs(self, connection: AsyncConnection, table: str) -> list[dict[str, Any]]:
        """Runs of a table that never finished, newest first."""
        query = (
            sa.select(runs.c.document)
            .where(runs.c.table == table, runs.c.outcome.is_(None))
            .order_by(runs.c.started_at.desc(), runs.c.id.desc())
        )
        return list((await connection.execute(query)).scalars())

    @transaction
    async def close_run(self, connection: AsyncConnection, document: dict[str, Any]) -> bool:
        """Finish a run for a process that is gone; one that finished itself stays as it is."""
        closed = await connection.execute(
            sa.update(runs)
            .where(runs.c.id == document["run_id"], runs.c.outcome.is_(None))
            .values(
                finished_at=datetime.fromisoformat(document["finished_at"]),
                phase=document["phase"],
                outcome=document["outcome"],
                document=document,
            )
        )
        return bool(closed.rowcount)

    @transaction
    async def forget_runs(self, connection: AsyncConnection, before: datetime, limit: int) -> tuple[int, list[str]]:
        """Forget old runs and all that hangs on them."""
        old = sa.select(runs.c.id).where(runs.c.finished_at < before).order_by(runs.c.finished_at, runs.c.id)
        ids = list((await connection.execute(old.limit(limit))).scalars())
        rows = await connection.execute(sa.select(plans.c.rows_path).where(plans.c.run_id.in_(ids)))
        addresses = list(rows.scalars())
        for dependent in (approvals, batches, plans):
            await connection.execute(sa.delete(dependent).where(dependent.c.run_id.in_(ids)))
        await connection.execute(sa.delete(runs).where(runs.c.id.in_(ids)))
        return len(ids), addresses

    # Plans and the journal of their batches

    @transaction
    async def save_plan(self, connection: AsyncConnection, header: PlanHeader) -> None:
        """A run has one plan for ever: its journal counts that plan's rows."""
        await _table_of_run(connection, header.run_id)
        if await self.database.insert_new(connection, plans, asdict(header)):
            return
        if await _plan(connection, header.run_id) != header:
            raise StateError(f"run {header.run_id} already has another plan")

    @transaction
    async def get_plan(self, connection: AsyncConnection, run_id: str) -> PlanHeader | None:
        """The plan of a run, without its rows."""
        return await _plan(connection, run_id)

    @transaction
    async def begin_batch(self, connection: AsyncConnection, record: BatchRecord) -> None:
        """Journal the intent, if the lease is valid at that very moment."""
        table = await _table_of_run(connection, record.run_id)
        newest = await _locked_lease(connection, table)
        now = await self.database.now(connection)
        laws.require_valid(newest, table=table, token=record.fencing_token, now=now)
        intent = asdict(replace(record, state=BatchState.INTENT))
        if not await self.database.insert_new(connection, batches, intent):
            raise StateError(f"batch {record.number} of run {record.run_id} is already in the journal")

    @transaction
    async def finish_batch(self, connection: AsyncConnection, record: BatchRecord) -> None:
        """Journal the outcome. No lease is asked for: what happened is a fact."""
        this_batch = sa.and_(batches.c.run_id == record.run_id, batches.c.number == record.number)
        found = await connection.execute(sa.select(batches).where(this_batch).with_for_update())
        row = found.mappings().one_or_none()
        done = laws.closing(_batch(row) if row else None, record)
        await connection.execute(sa.update(batches).where(this_batch).values(asdict(done)))

    @transaction
    async def journal(self, connection: AsyncConnection, run_id: str) -> list[BatchRecord]:
        """All batches of a run by number."""
        query = sa.select(batches).where(batches.c.run_id == run_id).order_by(batches.c.number)
        return [_batch(row) for row in (await connection.execute(query)).mappings()]

    # Leases

    @transaction
    async def acquire_lease(self, connection: AsyncConnection, table: str, owner: str, ttl: timedelta) -> Lease | None:
        """A lease with a token greater than any before, or None while another owner holds it."""
        # The row must be there before it can be locked.
        await self.database.insert_new(connection, leases, {**asdict(_NO_LEASE), "table": table})
        newest = await _locked_lease(connection, table)
        now = await self.database.now(connection)
        granted = laws.grant(newest, table=table, owner=owner, ttl=ttl, now=now)
        if granted:
            await self.database.upsert(connection, leases, asdict(granted))
        return granted

    @transaction
    async def renew_lease(self, connection: AsyncConnection, lease: Lease, ttl: timedelta) -> Lease:
        """Extend, or raise LeaseLost."""
        newest = await _locked_lease(connection, lease.table)
        now = await self.database.now(connection)
        current = laws.require_valid(newest, table=lease.table, token=lease.token, now=now)
        renewed = replace(current, expires_at=now + ttl)
        await self.database.upsert(connection, leases, asdict(renewed))
        return renewed

    @transaction
    async def check_lease(self, connection: AsyncConnection, lease: Lease) -> None:
        """Raise LeaseLost unless the lease is valid by the store's clock."""
        newest = await _locked_lease(connection, lease.table)
        now = await self.database.now(connection)
        laws.require_valid(newest, table=lease.table, token=lease.token, now=now)

    @transaction
    async def release_lease(self, connection: AsyncConnection, lease: Lease) -> None:
        """End the lease now; nothing happens if it is not the newest any more."""
        await connection.execute(
            sa.update(leases)
            .where(leases.c.table == lease.table, leases.c.token == lease.token)
            .values(expires_at=laws.RELEASED)
        )

    # One row per table: pending expiry, due time, ledger

    @transaction
    async def set_pending_expiry(
        self, connection: AsyncConnection, table: str, head_before: str | None, run_id: str
    ) -> None:
        """Remember the head an expiry commit starts from; None forgets it."""
        if head_before is None:
            await connection.execute(sa.delete(pending_expiries).where(pending_expiries.c.table == table))
        else:
            row = {"table": table, "head_before": head_before, "run_id": run_id}
            await self.database.upsert(connection, pending_expiries, row)

    @transaction
    async def pending_expiry(self, connection: AsyncConnection, table: str) -> str | None:
        """The head before an expiry commit whose files are not swept yet."""
        query = sa.select(pending_expiries.c.head_before).where(pending_expiries.c.table == table)
        return (await connection.execute(query)).scalar_one_or_none()

    @transaction
    async def set_due(self, connection: AsyncConnection, due: DueTime) -> None:
        """When a table is next looked at."""
        await self.database.upsert(connection, due_times, asdict(due))

    @transaction
    async def get_due(self, connection: AsyncConnection, table: str) -> DueTime | None:
        """When one table is next looked at."""
        row = (await connection.execute(sa.select(due_times).where(due_times.c.table == table))).mappings()
        found = row.one_or_none()
        return DueTime(**found) if found else None

    @transaction
    async def due_times(self, connection: AsyncConnection, *, until: datetime | None = None) -> list[DueTime]:
        """The soonest first."""
        query = sa.select(due_times).order_by(due_times.c.next_due, due_times.c.table)
        if until is not None:
            query = query.where(due_times.c.next_due <= until)
        found: list[DueTime] = []
        # There is a row for every table: read at one go, many of them would hold up the event loop.
        async with connection.stream(query) as rows:
            async for part in rows.mappings().partitions(_ROWS_AT_ONCE):
                found += [DueTime(**row) for row in part]
        return found

    @transaction
    async def set_ledger(self, connection: AsyncConnection, header: LedgerHeader) -> None:
        """Where a table's ledger is from now on."""
        await self.database.upsert(connection, ledgers, asdict(header))

    @transaction
    async def get_ledger(self, connection: AsyncConnection, table: str) -> LedgerHeader | None:
        """Where a table's ledger is, if it has one."""
        query = sa.select(ledgers).where(ledgers.c.table == table)
        row = (await connection.execute(query)).mappings().one_or_none()
        return LedgerHeader(**row) if row else None

    # What people said

    @transaction
    async def add_approval(self, connection: AsyncConnection, approval: Approval) -> None:
        """Remember an approval."""
        await _table_of_run(connection, approval.run_id)
        await self.database.upsert(connection, approvals, asdict(approval))

    @transaction
    async def approvals(self, connection: AsyncConnection, table: str) -> list[Approval]:
        """Of a table, newest first."""
        query = sa.select(approvals).where(approvals.c.table == table)
        newest_first = query.order_by(approvals.c.approved_at.desc(), approvals.c.run_id.desc())
        return [Approval(**row) for row in (await connection.execute(newest_first)).mappings()]

    @transaction
    async def set_hold(self, connection: AsyncConnection, hold: Hold) -> None:
        """Remember a hold, or replace the one of the same scope."""
        await self.database.upsert(connection, holds, asdict(hold))

    @transaction
    async def clear_hold(self, connection: AsyncConnection, scope: str) -> bool:
        """Forget a hold."""
        cleared = await connection.execute(sa.delete(holds).where(holds.c.scope == scope))
        return bool(cleared.rowcount)

    @transaction
    async def holds(self, connection: AsyncConnection) -> list[Hold]:
        """All of them."""
        query = sa.select(holds).order_by(holds.c.scope)
        return [Hold(**row) for row in (await connection.execute(query)).mappings()]

    @transaction
    async def ping(self, connection: AsyncConnection) -> None:
        """Raise StateError if the store is out of reach."""
        await connection.execute(sa.select(sa.literal(1)))

    async def aclose(self) -> None:
        """Give back the connections."""
        await self.database.aclose()


_NO_LEASE = Lease(table="", owner="", token=0, expires_at=laws.RELEASED)
"""What stands in for a lease that was never granted: older than the first one, and long over."""


def _run_row(run: CleanupRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "table": run.table.label,
        "tenant": run.table.tenant,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "phase": run.phase,
        "outcome": run.outcome,
        "document": run_document(run),
    }


async def _table_of_run(connection: AsyncConnection, run_id: str) -> str:
    table = (await connection.execute(sa.select(runs.c.table).where(runs.c.id == run_id))).scalar_one_or_none()
    if table is None:
        raise StateError(f"run {run_id} is not recorded")
    return str(table)


async def _plan(connection: AsyncConnection, run_id: str) -> PlanHeader | None:
    row = (await connection.execute(sa.select(plans).where(plans.c.run_id == run_id))).mappings().one_or_none()
    return PlanHeader(**row) if row else None


async def _locked_lease(connection: AsyncConnection, table: str) -> Lease | None:
    """The newest lease of a table; nobody else changes it before this transaction ends."""
    query = sa.select(leases).where(leases.c.table == table).with_for_update()
    row = (await connection.execute(query)).mappings().one_or_none()
    return Lease(**row) if row else None


def _batch(row: sa.RowMapping) -> BatchRecord:
    return BatchRecord(**{**row, "state": BatchState(row["state"])})
