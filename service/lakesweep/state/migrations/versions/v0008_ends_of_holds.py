"""When a hold ends by itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns. Existing holds stay until they are resumed, as before."""
    op.add_column("lakesweep_holds", sa.Column("ends_at", sa.DateTime(timezone=True)))
    op.add_column("lakesweep_holds", sa.Column("ends_of", sa.DateTime(timezone=True)))
