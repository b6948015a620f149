"""Whether a hold is an administrator's, which a tenant's token cannot lift."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column. It is unknown who made the existing holds, so they count as an administrator's."""
    op.add_column("lakesweep_holds", sa.Column("by_admin", sa.Boolean(), nullable=False, server_default=sa.true()))
