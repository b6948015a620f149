"""The part of the SQL store for audit headers, API tokens and notices."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import sqlalchemy as sa

from lakesweep.model.access import ApiToken, Role
from lakesweep.model.errors import StateError
from lakesweep.ports.state import AuditHeader, Notice
from lakesweep.state.database import Database, transaction
from lakesweep.state.schema import audits, installation, notices, tokens


class SqlAccess:
    """Audit headers, tokens and notices."""

    def __init__(self, database: Database) -> None:
        self.database = database

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


_NOTE = "note:"
"""Prefix of the names of notes, so that no note is taken for a secret."""
_RECALL = sa.select(installation.c.value).where(installation.c.name == sa.bindparam("of_name"))
_MOVE_ON = sa.update(audits).where(audits.c.run_id == sa.bindparam("of_run"), audits.c.last < sa.bindparam("before"))


def _token(row: sa.RowMapping) -> ApiToken:
    return ApiToken(**{**row, "role": Role(row["role"]), "tenants": tuple(row["tenants"])})
