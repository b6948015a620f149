"""The part of the SQL store with one row for each table or scope: leases, pending expiries, due times, ledgers, holds.

`rules.py` decides; here rows are locked, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lakesweep.model.run import Lease
from lakesweep.ports.state import DueTime, Hold, LedgerHeader
from lakesweep.state import rules
from lakesweep.state.database import Database, transaction
from lakesweep.state.schema import due_times, holds, leases, ledgers, pending_expiries

IN_PARTS = {"yield_per": 250}
"""Option of a query with a row for every table: to read very many at once would block the event loop. Between two
parts other tasks get their turn."""
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_NO_LEASE = Lease(table="", owner="", token=0, expires_at=rules.RELEASED)
"""A placeholder for a lease that was never granted: older than the first one, and expired."""


class SqlPerTable:
    """What is stored about a table between its runs."""

    database: Database

    @transaction
    def acquire_lease(self, connection: sa.Connection, table: str, owner: str, ttl: timedelta) -> Lease | None:
        # The row must exist before it can be locked.
        self.database.insert_new(connection, leases, {**asdict(_NO_LEASE), "table": table})
        newest = _locked_lease(connection, table)
        now = self.database.now(connection)
        granted = rules.grant(newest, table=table, owner=owner, ttl=ttl, now=now)
        if granted:
            self.database.upsert(connection, leases, asdict(granted))
        return granted

    @transaction
    def renew_lease(self, connection: sa.Connection, lease: Lease, ttl: timedelta) -> Lease:
        current, now = self._require_lease(connection, lease.table, lease.token)
        renewed = replace(current, expires_at=now + ttl)
        self.database.upsert(connection, leases, asdict(renewed))
        return renewed

    @transaction
    def check_lease(self, connection: sa.Connection, lease: Lease) -> None:
        self._require_lease(connection, lease.table, lease.token)

    @transaction
    def release_lease(self, connection: sa.Connection, lease: Lease) -> None:
        released = {"of_table": lease.table, "of_token": lease.token, "expires_at": rules.RELEASED}
        connection.execute(_RELEASE, released)

    def _require_lease(self, connection: sa.Connection, table: str, token: int) -> tuple[Lease, datetime]:
        """The lease with this token and the store's time, or LeaseLost. It is locked until this transaction ends."""
        newest = _locked_lease(connection, table)
        now = self.database.now(connection)
        return rules.require_valid(newest, table=table, token=token, now=now), now

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
                changed = rules.merged(_hold(row), hold, now)
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
        return [hold for hold in found if not rules.has_ended(hold, now)]

    @transaction
    def ended_holds(self, connection: sa.Connection) -> list[Hold]:
        now, found = self._holds(connection)
        return [hold for hold in found if rules.has_ended(hold, now)]

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


# Used in every cycle or several times for every batch, so these are built once.

_RELEASE = sa.update(leases).where(
    leases.c.table == sa.bindparam("of_table"), leases.c.token == sa.bindparam("of_token")
)
_LOCKED_LEASE = sa.select(leases).where(leases.c.table == sa.bindparam("of_table")).with_for_update()
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


def _locked_lease(connection: sa.Connection, table: str) -> Lease | None:
    """The newest lease of a table, locked until this transaction ends."""
    row = connection.execute(_LOCKED_LEASE, {"of_table": table}).mappings().one_or_none()
    return Lease(**row) if row else None
