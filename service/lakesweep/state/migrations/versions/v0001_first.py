"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything. Types are written out, so that later changes of the code do not change this step."""
    text, big, time = sa.Text(), sa.BigInteger(), sa.DateTime(timezone=True)
    op.create_table(
        "lakesweep_runs",
        sa.Column("id", text, nullable=False),
        sa.Column("table", text, nullable=False),
        sa.Column("tenant", text, nullable=False),
        sa.Column("started_at", time, nullable=False),
        sa.Column("finished_at", time),
        sa.Column("phase", text, nullable=False),
        sa.Column("outcome", text),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_lakesweep_runs"),
    )
    op.create_index("ix_lakesweep_runs_table_started_at", "lakesweep_runs", ["table", "started_at"])
    op.create_index("ix_lakesweep_runs_started_at", "lakesweep_runs", ["started_at"])
    op.create_table(
        "lakesweep_plans",
        sa.Column("run_id", text, nullable=False),
        sa.Column("table", text, nullable=False),
        sa.Column("head", text, nullable=False),
        sa.Column("digest", text, nullable=False),
        sa.Column("rows_path", text, nullable=False),
        sa.Column("candidates", big, nullable=False),
        sa.Column("bytes", big, nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_lakesweep_plans"),
        sa.ForeignKeyConstraint(["run_id"], ["lakesweep_runs.id"], name="fk_lakesweep_plans_run_id"),
    )
    counts = ("number", "first", "count", "fencing_token", "deleted", "bytes", "already_gone", "failed")
    op.create_table(
        "lakesweep_batches",
        sa.Column("run_id", text, nullable=False),
        sa.Column("state", text, nullable=False),
        *(sa.Column(name, big, nullable=False, autoincrement=False) for name in counts),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_lakesweep_batches"),
        sa.ForeignKeyConstraint(["run_id"], ["lakesweep_runs.id"], name="fk_lakesweep_batches_run_id"),
    )
    _create_per_table(text, big, time)


def _create_per_table(text: sa.Text, big: sa.BigInteger, time: sa.DateTime) -> None:
    """The tables with one row per lakehouse table."""
    op.create_table(
        "lakesweep_leases",
        sa.Column("table", text, nullable=False),
        sa.Column("owner", text, nullable=False),
        sa.Column("token", big, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.PrimaryKeyConstraint("table", name="pk_lakesweep_leases"),
    )
    op.create_table(
        "lakesweep_pending_expiries",
        sa.Column("table", text, nullable=False),
        sa.Column("head_before", text, nullable=False),
        sa.Column("run_id", text, nullable=False),
        sa.PrimaryKeyConstraint("table", name="pk_lakesweep_pending_expiries"),
    )
    op.create_table(
        "lakesweep_due_times",
        sa.Column("table", text, nullable=False),
        sa.Column("next_due", time, nullable=False),
        sa.Column("last_finished", time),
        sa.Column("last_outcome", text),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("table", name="pk_lakesweep_due_times"),
    )
    op.create_table(
        "lakesweep_ledgers",
        sa.Column("table", text, nullable=False),
        sa.Column("rows_path", text, nullable=False),
        sa.Column("updated_at", time, nullable=False),
        sa.Column("run_id", text, nullable=False),
        sa.PrimaryKeyConstraint("table", name="pk_lakesweep_ledgers"),
    )
