"""Where each run's audit records are, and the tokens of the API."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add two tables; existing ones do not change."""
    text, big, time = sa.Text(), sa.BigInteger(), sa.DateTime(timezone=True)
    op.create_table(
        "lakesweep_audits",
        sa.Column("run_id", text, nullable=False),
        sa.Column("table", text, nullable=False),
        sa.Column("first", big, nullable=False),
        sa.Column("last", big, nullable=False),
        sa.Column("digest", text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_lakesweep_audits"),
    )
    op.create_index("ix_lakesweep_audits_table_last", "lakesweep_audits", ["table", "last"])
    op.create_table(
        "lakesweep_tokens",
        sa.Column("id", text, nullable=False),
        sa.Column("digest", text, nullable=False),
        sa.Column("role", text, nullable=False),
        sa.Column("tenants", sa.JSON(), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("expires_at", time),
        sa.Column("revoked_at", time),
        sa.PrimaryKeyConstraint("id", name="pk_lakesweep_tokens"),
    )
