"""The part of the SQL store beside runs, plans and batches. One row for each table or scope: leases, pending expiries,
due times, ledgers, holds. One for each name or id: audit headers, API tokens, notices, secrets and notes.

`rules.py` decides; here rows are locked, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lakesweep.model.access import ApiToken, Role
from lakesweep.model.errors import StateError
from lakesweep.model.run import Lease
from lakesweep.ports.state import AuditHeader, DueTime, Hold, LedgerHeader, Notice
from lakesweep.state import rules
from lakesweep.state.database import Database, transaction
from lakesweep.state.schema import audits, due_times, holds, installation, leases, ledgers, notices, tokens
from lakesweep.state.schema import pending_expiries as pending

IN_PARTS = {"yield_per": 250}
"""Option of a query with a row for every table: to read very many at once would block the event loop. Between two
parts other tasks get their turn."""
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_NO_LEASE = Lease(table="", owner="", token=0, expires_at=rules.RELEASED)
"""A placeholder for a lease that was never granted: older than the first one, and expired."""


class SqlRecords:
    """What is stored about tables between their runs, and about those who use the service."""

    def __init__(self, database: Database) -> None:
        self.database = database

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
            connection.execute(sa.delete(pending).where(pending.c.table == table))
        else:
            row = {"table": table, "head_before": head_before, "run_id": run_id}
            self.database.upsert(connection, pending, row)

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

    @transaction
    def secret(self, connection: sa.Connection, name: str, new: str) -> str:
        self.database.insert_new(connection, installation, {"name": name, "value": new})
        query = sa.select(installation.c.value).where(installation.c.name == name)
        return str(connection.execute(query).scalar_one())

    @transaction
    def remember(self, connection: sa.Connection, name: str, value: str) -> None:
        self.database.upsert(connection, installation, {"name": f"{_NOTE}{name}", "value": value})

    @transaction
    def recall(self, connection: sa.Connection, name: str) -> str | None:
        return connection.execute(_RECALL, {"of_name": f"{_NOTE}{name}"}).scalar_one_or_none()

    @transaction
    def server_time(self, connection: sa.Connection) -> datetime | None:
        return self.database.now(connection) if self.database.has_clock else None

    @transaction
    def set_audit(self, connection: sa.Connection, header: AuditHeader) -> None:
        further = {"of_run": header.run_id, "before": header.last, "last": header.last, "digest": header.digest}
        # The row nearly always exists; if another transaction inserts it in between, it is updated after all.
        if connection.execute(_MOVE_ON, further).rowcount:
            return
        if not self.database.insert_new(connection, audits, asdict(header)):
            connection.execute(_MOVE_ON, further)

    @transaction
    def get_audit(self, connection: sa.Connection, run_id: str) -> AuditHeader | None:
        row = connection.execute(sa.select(audits).where(audits.c.run_id == run_id)).mappings().one_or_none()
        return AuditHeader(**row) if row else None

    @transaction
    def audit_head(self, connection: sa.Connection, table: str) -> AuditHeader | None:
        query = sa.select(audits).where(audits.c.table == table).order_by(audits.c.last.desc()).limit(1)
        row = connection.execute(query).mappings().one_or_none()
        return AuditHeader(**row) if row else None

    @transaction
    def audited_tables(self, connection: sa.Connection) -> list[str]:
        query = sa.select(audits.c.table).distinct().order_by(audits.c.table)
        return list(connection.execute(query).scalars())

    @transaction
    def add_token(self, connection: sa.Connection, token: ApiToken) -> None:
        if not self.database.insert_new(connection, tokens, {**asdict(token), "tenants": list(token.tenants)}):
            raise StateError(f"token {token.id} already exists")

    @transaction
    def get_token(self, connection: sa.Connection, token_id: str) -> ApiToken | None:
        row = connection.execute(sa.select(tokens).where(tokens.c.id == token_id)).mappings().one_or_none()
        return _token(row) if row else None

    @transaction
    def list_tokens(self, connection: sa.Connection) -> list[ApiToken]:
        query = sa.select(tokens).order_by(tokens.c.created_at, tokens.c.id)
        return [_token(row) for row in connection.execute(query).mappings()]

    @transaction
    def revoke_token(self, connection: sa.Connection, token_id: str, when: datetime) -> bool:
        first = sa.func.coalesce(tokens.c.revoked_at, sa.literal(when, tokens.c.revoked_at.type))
        ended = connection.execute(sa.update(tokens).where(tokens.c.id == token_id).values(revoked_at=first))
        return bool(ended.rowcount)

    @transaction
    def add_notice(self, connection: sa.Connection, notice: Notice) -> None:
        self.database.insert_new(connection, notices, asdict(notice))

    @transaction
    def notices(self, connection: sa.Connection, *, dead: bool = False, limit: int = 500) -> list[Notice]:
        wanted = notices.c.dead_at.is_not(None) if dead else notices.c.dead_at.is_(None)
        query = sa.select(notices).where(wanted).order_by(notices.c.created_at, notices.c.id).limit(limit)
        return [Notice(**row) for row in connection.execute(query).mappings()]

    @transaction
    def claim_notice(self, connection: sa.Connection, notice: Notice, next_try: datetime) -> bool:
        claimed = connection.execute(
            sa.update(notices)
            .where(notices.c.id == notice.id, notices.c.attempts == notice.attempts, notices.c.dead_at.is_(None))
            .values(attempts=notice.attempts + 1, next_try=next_try)
        )
        return bool(claimed.rowcount)

    @transaction
    def end_notice(self, connection: sa.Connection, notice_id: str, dead_at: datetime | None = None) -> None:
        ended: sa.Delete | sa.Update = sa.delete(notices).where(notices.c.id == notice_id)
        if dead_at is not None:
            ended = sa.update(notices).where(notices.c.id == notice_id).values(dead_at=dead_at)
        connection.execute(ended)


# Used in every cycle or several times for every batch, so these are built once.

_RELEASE = sa.update(leases).where(
    leases.c.table == sa.bindparam("of_table"), leases.c.token == sa.bindparam("of_token")
)
_LOCKED_LEASE = sa.select(leases).where(leases.c.table == sa.bindparam("of_table")).with_for_update()
_PENDING_EXPIRY = sa.select(pending.c.head_before).where(pending.c.table == sa.bindparam("of_table"))
_DUE = sa.select(due_times).where(due_times.c.table == sa.bindparam("of_table"))
_LEDGER = sa.select(ledgers).where(ledgers.c.table == sa.bindparam("of_table"))
_HOLDS = sa.select(holds).order_by(holds.c.scope)
_NOTE = "note:"
"""Prefix of the names of notes, so that no note is taken for a secret."""
_RECALL = sa.select(installation.c.value).where(installation.c.name == sa.bindparam("of_name"))
_MOVE_ON = sa.update(audits).where(audits.c.run_id == sa.bindparam("of_run"), audits.c.last < sa.bindparam("before"))


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


def _token(row: sa.RowMapping) -> ApiToken:
    return ApiToken(**{**row, "role": Role(row["role"]), "tenants": tuple(row["tenants"])})
