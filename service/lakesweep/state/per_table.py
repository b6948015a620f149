"""The part of the SQL store that has one row for each table or scope: pending expiries, due times, ledgers, holds."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from lakesweep.ports.state import DueTime, Hold, LedgerHeader
from lakesweep.state.database import Database
from lakesweep.state.schema import due_times, holds, ledgers, pending_expiries
from lakesweep.state.transactions import transaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_ROWS_AT_ONCE = 250
"""Of a long answer; between two parts others get their turn."""


class SqlPerTable:
    """What is to be remembered of a table between its runs."""

    database: Database

    @transaction
    async def set_pending_expiry(
        self, connection: AsyncConnection, table: str, head_before: str | None, run_id: str
    ) -> None:
        if head_before is None:
            await connection.execute(sa.delete(pending_expiries).where(pending_expiries.c.table == table))
        else:
            row = {"table": table, "head_before": head_before, "run_id": run_id}
            await self.database.upsert(connection, pending_expiries, row)

    @transaction
    async def pending_expiry(self, connection: AsyncConnection, table: str) -> str | None:
        query = sa.select(pending_expiries.c.head_before).where(pending_expiries.c.table == table)
        return (await connection.execute(query)).scalar_one_or_none()

    @transaction
    async def set_due(self, connection: AsyncConnection, due: DueTime) -> None:
        await self.database.upsert(connection, due_times, asdict(due))

    @transaction
    async def get_due(self, connection: AsyncConnection, table: str) -> DueTime | None:
        row = (await connection.execute(sa.select(due_times).where(due_times.c.table == table))).mappings()
        found = row.one_or_none()
        return DueTime(**found) if found else None

    @transaction
    async def due_times(self, connection: AsyncConnection, *, until: datetime | None = None) -> list[DueTime]:
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
        await self.database.upsert(connection, ledgers, asdict(header))

    @transaction
    async def get_ledger(self, connection: AsyncConnection, table: str) -> LedgerHeader | None:
        query = sa.select(ledgers).where(ledgers.c.table == table)
        row = (await connection.execute(query)).mappings().one_or_none()
        return LedgerHeader(**row) if row else None

    @transaction
    async def set_hold(self, connection: AsyncConnection, hold: Hold) -> None:
        only = None if hold.by_admin else sa.not_(holds.c.by_admin)
        await self.database.upsert(connection, holds, asdict(hold), only=only)

    @transaction
    async def clear_hold(self, connection: AsyncConnection, scope: str, *, admin: bool = True) -> bool:
        allowed = sa.true() if admin else sa.not_(holds.c.by_admin)
        cleared = await connection.execute(sa.delete(holds).where(holds.c.scope == scope, allowed))
        return bool(cleared.rowcount)

    @transaction
    async def holds(self, connection: AsyncConnection) -> list[Hold]:
        query = sa.select(holds).order_by(holds.c.scope)
        return [Hold(**row) for row in (await connection.execute(query)).mappings()]
