"""The part of the SQL store with one row for each table or scope: pending expiries, due times, ledgers, holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from lakesweep.ports.state import DueTime, Hold, LedgerHeader
from lakesweep.state import hold_rules
from lakesweep.state.database import Database, transaction
from lakesweep.state.schema import due_times, holds, ledgers, pending_expiries

IN_PARTS = {"yield_per": 250}
"""Option of a query with a row for every table: to read very many at once would block the event loop. Between two
parts other tasks get their turn."""
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class SqlPerTable:
    """What is stored about a table between its runs."""

    database: Database

    @transaction
    def set_pending_expiry(self, connection: sa.Connection, table: str, head_before: str | None, run_id: str) -> None:
        if head_before is None:
            connection.execute(sa.delete(pending_expiries).where(pending_expiries.c.table == table))
        else:
            row = {"table": table, "head_before": head_before, "run_id": run_id}
            self.database.upsert(connection, pending_expiries, row)

    @transaction
    def pending_expiry(self, connection: sa.Connection, table: str) -> str | None:
        return connection.execute(_PENDING_EXPIRY, {"of_table": table}).scalar_one_or_none()

    @transaction
    def set_due(self, connection: sa.Connection, due: DueTime) -> None:
        self.database.upsert(connection, due_times, asdict(due))

    @transaction
    def get_due(self, connection: sa.Connection, table: str) -> DueTime | None:
        row = connection.execute(_DUE, {"of_table": table}).mappings().one_or_none()
        return DueTime(**row) if row else None

    @transaction
    def due_times(self, connection: sa.Connection, *, until: datetime | None = None) -> list[DueTime]:
        query = sa.select(due_times).order_by(due_times.c.next_due, due_times.c.table)
        if until is not None:
            query = query.where(due_times.c.next_due <= until)
        return [DueTime(**row) for row in connection.execute(query, execution_options=IN_PARTS).mappings()]

    @transaction
    def set_ledger(self, connection: sa.Connection, header: LedgerHeader) -> None:
        self.database.upsert(connection, ledgers, asdict(header))

    @transaction
    def get_ledger(self, connection: sa.Connection, table: str) -> LedgerHeader | None:
        row = connection.execute(_LEDGER, {"of_table": table}).mappings().one_or_none()
        return LedgerHeader(**row) if row else None

    @transaction
    def set_hold(self, connection: sa.Connection, hold: Hold) -> None:
        same = holds.c.scope == hold.scope
        while not self.database.insert_new(connection, holds, _row(hold)):
            row = connection.execute(sa.select(holds).where(same).with_for_update()).mappings().one_or_none()
            if row is not None:  # else it was cleared meanwhile
                now = self.database.safely_now(connection)
                changed = hold_rules.merged(_hold(row), hold, now)
                connection.execute(sa.update(holds).where(same).values(_row(changed)))
                return

    @transaction
    def clear_hold(self, connection: sa.Connection, scope: str, *, admin: bool = True) -> bool:
        allowed = sa.true() if admin else sa.not_(holds.c.by_admin)
        cleared = connection.execute(sa.delete(holds).where(holds.c.scope == scope, allowed))
        return bool(cleared.rowcount)

    @transaction
    def holds(self, connection: sa.Connection) -> list[Hold]:
        now, found = self._holds(connection)
        return [hold for hold in found if not hold_rules.has_ended(hold, now)]

    @transaction
    def ended_holds(self, connection: sa.Connection) -> list[Hold]:
        now, found = self._holds(connection)
        return [hold for hold in found if hold_rules.has_ended(hold, now)]

    @transaction
    def forget_ended_holds(self, connection: sa.Connection, before: datetime) -> int:
        before = min(before, self.database.safely_now(connection))
        ended = sa.delete(holds).where(holds.c.ends_at < before, holds.c.ends_of == holds.c.since)
        return connection.execute(ended).rowcount

    def _holds(self, connection: sa.Connection) -> tuple[datetime, list[Hold]]:
        rows = connection.execute(_HOLDS).mappings()
        found = [_hold(row) for row in rows]
        needed = any(hold.ends_at is not None for hold in found)  # called before every request of a sweep
        return self.database.safely_now(connection) if needed else _BEGINNING, found


# Used in every cycle, so these are built once.

_PENDING_EXPIRY = sa.select(pending_expiries.c.head_before).where(pending_expiries.c.table == sa.bindparam("of_table"))
_DUE = sa.select(due_times).where(due_times.c.table == sa.bindparam("of_table"))
_LEDGER = sa.select(ledgers).where(ledgers.c.table == sa.bindparam("of_table"))
_HOLDS = sa.select(holds).order_by(holds.c.scope)


def _row(hold: Hold) -> dict[str, Any]:
    """The row of a hold, marked so that its end counts."""
    return {**asdict(hold), "ends_of": hold.since if hold.ends_at else None}


def _hold(row: Mapping[Any, Any]) -> Hold:
    """The hold of a row. An end counts only for the hold that it was written with."""
    fields = dict(row)
    if fields.pop("ends_of") != fields["since"]:
        fields["ends_at"] = None
    return Hold(**fields)
