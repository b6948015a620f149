"""The tables, as the newest migration leaves them and a new database gets them. Names carry a prefix: the database
may be shared.

Nothing here grows with a table's files: the rows of plans and ledgers are Parquet files and the audit is JSON lines
(old segments packed in Parquet), all in the artifacts; these are their headers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

NEWEST = "0008"
"""The last step in `migrations`; this module describes its result."""
VERSION_TABLE = "lakesweep_version"
metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)


class UtcTime(sa.types.TypeDecorator[datetime]):
    """An aware time in UTC. SQLite has no such type: there it is text that sorts by time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to UTC; SQLite's text has no time zone."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


def _required(kind: type[sa.types.TypeEngine[Any]], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _key(name: str, *constraints: sa.ForeignKey) -> sa.Column[str]:
    return sa.Column(name, sa.Text, *constraints, primary_key=True)


version = sa.Table(
    VERSION_TABLE,
    metadata,
    # Alembic's own table: it reads and updates this when it migrates.
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

runs = sa.Table(
    "lakesweep_runs",
    metadata,
    _key("id"),
    *_required(sa.Text, "table", "tenant"),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("finished_at", UtcTime),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Index(None, "table", "started_at"),
    sa.Index(None, "started_at"),
)

plans = sa.Table(
    "lakesweep_plans",
    metadata,
    _key("run_id", sa.ForeignKey(runs.c.id)),
    *_required(sa.Text, "table", "head", "digest", "rows_path"),
    *_required(sa.BigInteger, "candidates", "bytes"),
    sa.Column("created_at", UtcTime, nullable=False),
)

batches = sa.Table(
    "lakesweep_batches",
    metadata,
    _key("run_id", sa.ForeignKey(runs.c.id)),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    *_required(sa.BigInteger, "first", "count", "fencing_token", "deleted", "bytes", "already_gone", "failed"),
    sa.Column("trash_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("versions_bytes", sa.BigInteger, nullable=False, server_default="0"),
)

leases = sa.Table(
    "lakesweep_leases",
    metadata,
    _key("table"),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
)

pending_expiries = sa.Table(
    "lakesweep_pending_expiries", metadata, _key("table"), *_required(sa.Text, "head_before", "run_id")
)

due_times = sa.Table(
    "lakesweep_due_times",
    metadata,
    _key("table"),
    sa.Column("next_due", UtcTime, nullable=False),
    sa.Column("last_finished", UtcTime),
    sa.Column("last_outcome", sa.Text),
    sa.Column("failures", sa.Integer, nullable=False),
)

audits = sa.Table(
    "lakesweep_audits",
    metadata,
    # Without a foreign key to the runs: the trail must stay verifiable when old runs are removed.
    _key("run_id"),
    sa.Column("table", sa.Text, nullable=False),
    *_required(sa.BigInteger, "first", "last"),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Index(None, "table", "last"),
)

tokens = sa.Table(
    "lakesweep_tokens",
    metadata,
    _key("id"),
    *_required(sa.Text, "digest", "role"),
    sa.Column("tenants", sa.JSON, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
)

ledgers = sa.Table(
    "lakesweep_ledgers",
    metadata,
    _key("table"),
    sa.Column("rows_path", sa.Text, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
)

approvals = sa.Table(
    "lakesweep_approvals",
    metadata,
    _key("run_id", sa.ForeignKey(runs.c.id)),
    *_required(sa.Text, "table", "digest", "approved_by"),
    *_required(UtcTime, "approved_at", "expires_at"),
    sa.Index(None, "table"),
)

holds = sa.Table(
    "lakesweep_holds",
    metadata,
    _key("scope"),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("by_admin", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("ends_at", UtcTime),
    # The `since` of the hold that the end belongs to. A replica of an older version overwrites a hold and
    # leaves the end there: such a hold has none.
    sa.Column("ends_of", UtcTime),
)

notices = sa.Table(
    "lakesweep_notices",
    metadata,
    _key("id"),
    sa.Column("table", sa.Text, nullable=False),
    *_required(UtcTime, "created_at", "next_try"),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("dead_at", UtcTime),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Index(None, "dead_at", "created_at"),
)

installation = sa.Table("lakesweep_installation", metadata, _key("name"), sa.Column("value", sa.Text, nullable=False))
