"""Bytes of a batch that are still in the trash, or kept by the store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add both columns. Files of existing batches were deleted for good, as far as was known; older programs write
    0."""
    for name in ("trash_bytes", "versions_bytes"):
        op.add_column("lakesweep_batches", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
