"""What belongs to the installation as a whole: its key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table. The first program that needs the key creates it."""
    op.create_table(
        "lakesweep_installation",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_lakesweep_installation"),
    )
