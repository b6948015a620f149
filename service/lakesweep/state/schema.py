"""The tables, as the newest migration leaves them and a new database gets them. Names carry a prefix: the database
may be shared.

Nothing here grows with a table's files: the rows of plans and ledgers are Parquet files and the audit is JSON lines
(old segments packed in Parquet), all in the artifacts; these are their headers.
"""

from __future__ import annotations

from datetime import UTC, datetime

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
        """Add the time zone again."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


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
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
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
    sa.Column("run_id", sa.Text, sa.ForeignKey(runs.c.id), primary_key=True),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("rows_path", sa.Text, nullable=False),
    sa.Column("candidates", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)

batches = sa.Table(
    "lakesweep_batches",
    metadata,
    sa.Column("run_id", sa.Text, sa.ForeignKey(runs.c.id), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("fencing_token", sa.BigInteger, nullable=False),
    sa.Column("deleted", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("already_gone", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("trash_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("versions_bytes", sa.BigInteger, nullable=False, server_default="0"),
)

leases = sa.Table(
    "lakesweep_leases",
    metadata,
    sa.Column("table", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
)

pending_expiries = sa.Table(
    "lakesweep_pending_expiries",
    metadata,
    sa.Column("table", sa.Text, primary_key=True),
    sa.Column("head_before", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
)

due_times = sa.Table(
    "lakesweep_due_times",
    metadata,
    sa.Column("table", sa.Text, primary_key=True),
    sa.Column("next_due", UtcTime, nullable=False),
    sa.Column("last_finished", UtcTime),
    sa.Column("last_outcome", sa.Text),
    sa.Column("failures", sa.Integer, nullable=False),
)

audits = sa.Table(
    "lakesweep_audits",
    metadata,
    # Without a foreign key to the runs: the trail must stay verifiable when old runs are removed.
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Index(None, "table", "last"),
)

tokens = sa.Table(
    "lakesweep_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("tenants", sa.JSON, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("revoked_at", UtcTime),
)

ledgers = sa.Table(
    "lakesweep_ledgers",
    metadata,
    sa.Column("table", sa.Text, primary_key=True),
    sa.Column("rows_path", sa.Text, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
)

approvals = sa.Table(
    "lakesweep_approvals",
    metadata,
    sa.Column("run_id", sa.Text, sa.ForeignKey(runs.c.id), primary_key=True),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("approved_by", sa.Text, nullable=False),
    sa.Column("approved_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Index(None, "table"),
)

holds = sa.Table(
    "lakesweep_holds",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
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
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("next_try", UtcTime, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("dead_at", UtcTime),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Index(None, "dead_at", "created_at"),
)

installation = sa.Table(
    "lakesweep_installation",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
