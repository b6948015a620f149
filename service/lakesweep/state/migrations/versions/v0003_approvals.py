"""Approvals of plans above a ceiling, and holds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add both tables. Older programs do not use them."""
    text, time = sa.Text(), sa.DateTime(timezone=True)
    op.create_table(
        "lakesweep_approvals",
        sa.Column("run_id", text, nullable=False),
        sa.Column("table", text, nullable=False),
        sa.Column("digest", text, nullable=False),
        sa.Column("approved_by", text, nullable=False),
        sa.Column("approved_at", time, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_lakesweep_approvals"),
        sa.ForeignKeyConstraint(["run_id"], ["lakesweep_runs.id"], name="fk_lakesweep_approvals_run_id"),
    )
    op.create_index("ix_lakesweep_approvals_table", "lakesweep_approvals", ["table"])
    op.create_table(
        "lakesweep_holds",
        sa.Column("scope", text, nullable=False),
        sa.Column("since", time, nullable=False),
        sa.Column("by", text, nullable=False),
        sa.Column("reason", text),
        sa.PrimaryKeyConstraint("scope", name="pk_lakesweep_holds"),
    )
