"""The state store on SQL. Every method is one short transaction that contains its own query.

Decisions about leases and the journal are in `lease_rules.py`; here rows are locked, read and written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from lakesweep.cleanup import report
from lakesweep.model import run_document
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun, Lease
from lakesweep.ports.state import Approval, BatchRecord, BatchState, PlanHeader, RunFigures
from lakesweep.state import lease_rules
from lakesweep.state.access import SqlAccess, SqlNotices
from lakesweep.state.database import transaction
from lakesweep.state.per_table import ROWS_AT_ONCE, SqlPerTable
from lakesweep.state.schema import approvals, batches, leases, plans, runs

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


class SqlStateStore(SqlAccess, SqlPerTable, SqlNotices):
    """The StateStore port on SQLite or PostgreSQL."""

    # Runs

    @transaction
    async def start_run(self, connection: AsyncConnection, run: CleanupRun) -> None:
        if not await self.database.insert_new(connection, runs, _run_row(run)):
            raise StateError(f"run {run.id} is already recorded")

    @transaction
    async def update_run(self, connection: AsyncConnection, run: CleanupRun) -> None:
        result = await connection.execute(_UPDATE_RUN, {"of_run": run.id, **_run_row(run)})
        if result.rowcount == 0:
            raise StateError(f"run {run.id} is not recorded")

    @transaction
    async def get_run(self, connection: AsyncConnection, run_id: str) -> run_document.Run | None:
        query = sa.select(runs.c.document).where(runs.c.id == run_id)
        found = (await connection.execute(query)).scalar_one_or_none()
        return run_document.from_storage(found) if found is not None else None

    @transaction
    async def list_runs(
        self,
        connection: AsyncConnection,
        *,
        table: str | None = None,
        tenants: Collection[str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[run_document.Run]:
        """Newest first. Nothing is older than an unknown run."""
        query = sa.select(runs.c.document).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(runs.c.table == table)
        if tenants is not None:
            query = query.where(_among(runs.c.tenant, tenants))
        if before is not None:
            seen = sa.select(runs.c.started_at, runs.c.id).where(runs.c.id == before)
            query = query.where(sa.tuple_(runs.c.started_at, runs.c.id) < seen.scalar_subquery())
        return [run_document.from_storage(row) for row in (await connection.execute(query)).scalars()]

    @transaction
    async def last_runs(self, connection: AsyncConnection, tables: Collection[str]) -> dict[str, run_document.Run]:
        """The newest run of each of these tables, with one query."""
        newest = sa.func.row_number().over(
            partition_by=runs.c.table, order_by=(runs.c.started_at.desc(), runs.c.id.desc())
        )
        of_these = sa.select(runs.c.id, newest.label("place")).where(_among(runs.c.table, tables)).subquery()
        query = sa.select(runs.c.table, runs.c.document).join(of_these, of_these.c.id == runs.c.id)
        rows = await connection.execute(query.where(of_these.c.place == 1))
        return {row.table: run_document.from_storage(row.document) for row in rows}

    @transaction
    async def last_planned(
        self, connection: AsyncConnection, tenants: Collection[str] | None = None
    ) -> dict[str, run_document.Run]:
        """The newest finished run with a plan of each table, with one query."""
        newest = sa.func.row_number().over(
            partition_by=runs.c.table, order_by=(runs.c.started_at.desc(), runs.c.id.desc())
        )
        reason = runs.c.document["reason"].as_string()
        planned = (
            sa.select(runs.c.id, newest.label("place"))
            .join(plans, plans.c.run_id == runs.c.id)
            .where(runs.c.outcome.is_not(None))
            .where(sa.or_(reason.is_(None), reason.not_like(f"{run_document.INTERRUPTED}%")), _was_listed())
        )
        if tenants is not None:
            planned = planned.where(_among(runs.c.tenant, tenants))
        of_these = planned.subquery()
        query = sa.select(runs.c.table, runs.c.document).join(of_these, of_these.c.id == runs.c.id)
        found: dict[str, run_document.Run] = {}
        async with connection.stream(query.where(of_these.c.place == 1)) as rows:
            async for part in rows.partitions(ROWS_AT_ONCE):
                found |= {row.table: run_document.from_storage(row.document) for row in part}
        return found

    @transaction
    async def run_figures(
        self,
        connection: AsyncConnection,
        since: datetime,
        tenants: Collection[str] | None = None,
        *,
        table: str | None = None,
    ) -> list[RunFigures]:
        """Only the numbers: the whole documents of many tables would be too large."""
        query = (
            sa.select(
                runs.c.table,
                runs.c.started_at,
                sa.and_(plans.c.run_id.is_not(None), _was_listed()).label("planned"),
                _number("orphans", "bytes").label("orphan_bytes"),
                _number("deleted", "bytes").label("deleted_bytes"),
                # Runs recorded before this field existed freed what they deleted.
                sa.func.coalesce(_number("freed_bytes"), _number("deleted", "bytes")).label("freed_bytes"),
                sa.func.coalesce(_number("restored", "bytes"), 0).label("restored_bytes"),
                sa.func.coalesce(_number("restored", "count"), 0).label("restored_files"),
                _number("deleted", "count").label("deleted_files"),
                sa.func.coalesce(_number("orphans", "by_reason", "expired", "bytes"), 0).label("expired_bytes"),
            )
            .outerjoin(plans, plans.c.run_id == runs.c.id)
            .where(runs.c.started_at >= since, runs.c.outcome.is_not(None))
            .order_by(runs.c.started_at, runs.c.id)
        )
        if tenants is not None:
            query = query.where(_among(runs.c.tenant, tenants))
        if table is not None:
            query = query.where(runs.c.table == table)
        found: list[RunFigures] = []
        async with connection.stream(query) as rows:
            async for part in rows.mappings().partitions(ROWS_AT_ONCE):
                found += [RunFigures(**row) for row in part]
        return found

    @transaction
    async def runs_beginning(self, connection: AsyncConnection, prefix: str, limit: int = 10) -> list[run_document.Run]:
        query = sa.select(runs.c.document).where(runs.c.id.startswith(prefix, autoescape=True))
        newest_first = query.order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        return [run_document.from_storage(row) for row in (await connection.execute(newest_first)).scalars()]

    @transaction
    async def open_runs(self, connection: AsyncConnection, table: str) -> list[run_document.Run]:
        rows = (await connection.execute(_OPEN_RUNS, {"of_table": table})).scalars()
        return [run_document.from_storage(row) for row in rows]

    @transaction
    async def close_run(self, connection: AsyncConnection, document: run_document.Run) -> bool:
        """Finish a run whose process is gone; a finished run stays as it is."""
        finished_at = document["finished_at"]
        closed = await connection.execute(
            sa.update(runs)
            .where(runs.c.id == document["run_id"], runs.c.outcome.is_(None))
            .values(
                finished_at=datetime.fromisoformat(finished_at) if finished_at else None,
                phase=document["phase"],
                outcome=document["outcome"],
                document=document,
            )
        )
        return bool(closed.rowcount)

    @transaction
    async def forget_runs(self, connection: AsyncConnection, before: datetime, limit: int) -> tuple[int, list[str]]:
        old = sa.select(runs.c.id).where(runs.c.finished_at < before).order_by(runs.c.finished_at, runs.c.id)
        ids = list((await connection.execute(old.limit(limit))).scalars())
        rows = await connection.execute(sa.select(plans.c.rows_path).where(_among(plans.c.run_id, ids)))
        addresses = list(rows.scalars())
        for dependent in (approvals, batches, plans):
            await connection.execute(sa.delete(dependent).where(_among(dependent.c.run_id, ids)))
        await connection.execute(sa.delete(runs).where(_among(runs.c.id, ids)))
        return len(ids), addresses

    # Plans and the journal of their batches

    @transaction
    async def save_plan(self, connection: AsyncConnection, header: PlanHeader) -> None:
        """A run's plan never changes: its journal counts that plan's rows."""
        await _table_of_run(connection, header.run_id)
        if await self.database.insert_new(connection, plans, asdict(header)):
            return
        if await _plan(connection, header.run_id) != header:
            raise StateError(f"run {header.run_id} already has another plan")

    @transaction
    async def get_plan(self, connection: AsyncConnection, run_id: str) -> PlanHeader | None:
        return await _plan(connection, run_id)

    @transaction
    async def begin_batch(self, connection: AsyncConnection, record: BatchRecord) -> None:
        table = await _table_of_run(connection, record.run_id)
        newest = await _locked_lease(connection, table)
        now = await self.database.now(connection)
        lease_rules.require_valid(newest, table=table, token=record.fencing_token, now=now)
        intent = asdict(replace(record, state=BatchState.INTENT))
        if not await self.database.insert_new(connection, batches, intent):
            raise StateError(f"batch {record.number} of run {record.run_id} is already in the journal")

    @transaction
    async def finish_batch(self, connection: AsyncConnection, record: BatchRecord) -> None:
        this_batch = {"of_run": record.run_id, "of_number": record.number}
        row = (await connection.execute(_LOCKED_BATCH, this_batch)).mappings().one_or_none()
        done = lease_rules.closing(_batch(row) if row else None, record)
        await connection.execute(_CLOSE_BATCH, {**this_batch, **asdict(done)})

    @transaction
    async def journal(self, connection: AsyncConnection, run_id: str) -> list[BatchRecord]:
        query = sa.select(batches).where(batches.c.run_id == run_id).order_by(batches.c.number)
        return [_batch(row) for row in (await connection.execute(query)).mappings()]

    # Leases

    @transaction
    async def acquire_lease(self, connection: AsyncConnection, table: str, owner: str, ttl: timedelta) -> Lease | None:
        # The row must exist before it can be locked.
        await self.database.insert_new(connection, leases, {**asdict(_NO_LEASE), "table": table})
        newest = await _locked_lease(connection, table)
        now = await self.database.now(connection)
        granted = lease_rules.grant(newest, table=table, owner=owner, ttl=ttl, now=now)
        if granted:
            await self.database.upsert(connection, leases, asdict(granted))
        return granted

    @transaction
    async def renew_lease(self, connection: AsyncConnection, lease: Lease, ttl: timedelta) -> Lease:
        newest = await _locked_lease(connection, lease.table)
        now = await self.database.now(connection)
        current = lease_rules.require_valid(newest, table=lease.table, token=lease.token, now=now)
        renewed = replace(current, expires_at=now + ttl)
        await self.database.upsert(connection, leases, asdict(renewed))
        return renewed

    @transaction
    async def check_lease(self, connection: AsyncConnection, lease: Lease) -> None:
        newest = await _locked_lease(connection, lease.table)
        now = await self.database.now(connection)
        lease_rules.require_valid(newest, table=lease.table, token=lease.token, now=now)

    @transaction
    async def release_lease(self, connection: AsyncConnection, lease: Lease) -> None:
        released = {"of_table": lease.table, "of_token": lease.token, "expires_at": lease_rules.RELEASED}
        await connection.execute(_RELEASE, released)

    # Approvals

    @transaction
    async def add_approval(self, connection: AsyncConnection, approval: Approval) -> None:
        await _table_of_run(connection, approval.run_id)
        await self.database.upsert(connection, approvals, asdict(approval))

    @transaction
    async def approvals(self, connection: AsyncConnection, table: str) -> list[Approval]:
        query = sa.select(approvals).where(approvals.c.table == table)
        newest_first = query.order_by(approvals.c.approved_at.desc(), approvals.c.run_id.desc())
        return [Approval(**row) for row in (await connection.execute(newest_first)).mappings()]

    @transaction
    async def ping(self, connection: AsyncConnection) -> None:
        await connection.execute(sa.select(sa.literal(1)))

    async def aclose(self) -> None:
        await self.database.aclose()


_NO_LEASE = Lease(table="", owner="", token=0, expires_at=lease_rules.RELEASED)
"""A placeholder for a lease that was never granted: older than the first one, and expired."""


def _among(column: sa.Column[str], values: Collection[str]) -> sa.ColumnElement[bool]:
    """Is the column one of these values? The type is given explicitly: to infer it from an empty list, SQLAlchemy would
    use its ORM, which another thread may be importing for a catalog at that moment."""
    return column.in_(sa.bindparam(None, list(values), column.type, expanding=True))


def _was_listed() -> sa.ColumnElement[bool]:
    """Did the run list the whole table? Runs recorded before this field existed did."""
    listed = runs.c.document["listed"].as_boolean()
    return sa.or_(listed.is_(None), listed == sa.true())


def _number(*path: str) -> sa.ColumnElement[int]:
    """A number in a run's document. It may need 64 bits."""
    return sa.cast(runs.c.document[path].as_string(), sa.BigInteger)


def _run_row(run: CleanupRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "table": run.table.label,
        "tenant": run.table.tenant,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "phase": run.phase,
        "outcome": run.outcome,
        "document": report.run_document(run),
    }


# Used in every cycle or several times for every batch, so these are built once.

_UPDATE_RUN = sa.update(runs).where(runs.c.id == sa.bindparam("of_run"))
_OPEN_RUNS = (
    sa.select(runs.c.document)
    .where(runs.c.table == sa.bindparam("of_table"), runs.c.outcome.is_(None))
    .order_by(runs.c.started_at.desc(), runs.c.id.desc())
)
_RELEASE = sa.update(leases).where(
    leases.c.table == sa.bindparam("of_table"), leases.c.token == sa.bindparam("of_token")
)
_TABLE_OF_RUN = sa.select(runs.c.table).where(runs.c.id == sa.bindparam("of_run"))
_LOCKED_LEASE = sa.select(leases).where(leases.c.table == sa.bindparam("of_table")).with_for_update()
_THIS_BATCH = sa.and_(batches.c.run_id == sa.bindparam("of_run"), batches.c.number == sa.bindparam("of_number"))
_LOCKED_BATCH = sa.select(batches).where(_THIS_BATCH).with_for_update()
_CLOSE_BATCH = sa.update(batches).where(_THIS_BATCH)


async def _table_of_run(connection: AsyncConnection, run_id: str) -> str:
    table = (await connection.execute(_TABLE_OF_RUN, {"of_run": run_id})).scalar_one_or_none()
    if table is None:
        raise StateError(f"run {run_id} is not recorded")
    return str(table)


async def _plan(connection: AsyncConnection, run_id: str) -> PlanHeader | None:
    row = (await connection.execute(sa.select(plans).where(plans.c.run_id == run_id))).mappings().one_or_none()
    return PlanHeader(**row) if row else None


async def _locked_lease(connection: AsyncConnection, table: str) -> Lease | None:
    """The newest lease of a table, locked until this transaction ends."""
    row = (await connection.execute(_LOCKED_LEASE, {"of_table": table})).mappings().one_or_none()
    return Lease(**row) if row else None


def _batch(row: sa.RowMapping) -> BatchRecord:
    return BatchRecord(**{**row, "state": BatchState(row["state"])})
