"""Alembic's entry point. Always runs inside the transaction and under the lock of `upgrade.py`."""

from __future__ import annotations

from alembic import context

from lakesweep.state.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
