"""Migrate a database to the newest schema, one program at a time, completely or not at all.

A store that is up to date, as nearly every one is, costs one query. A new one is created from `schema.py`. Only an
older one goes through the steps in `migrations`, because Alembic is slow to import."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy as sa

from lakesweep.model.errors import StateError
from lakesweep.state import schema

MIGRATION_LOCK = 0x6C616B65
"""The advisory lock that replicas wait for before they migrate; an arbitrary number."""

_one_migration = threading.Lock()


@asynccontextmanager
async def one_at_a_time() -> AsyncIterator[None]:
    """Alembic keeps its context in module globals, so one process migrates one database at a time."""
    # An asyncio lock would belong to one event loop; the wait is rare and short.
    while not _one_migration.acquire(blocking=False):  # noqa: ASYNC110  # see above
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        _one_migration.release()


def to_newest(connection: sa.Connection, name: str) -> None:
    """Create or migrate, inside one transaction. `name` is the database's name in messages."""
    if connection.dialect.name == "postgresql":  # on SQLite the BEGIN is the lock between processes
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    found = version(connection, name)
    if found is None:
        schema.metadata.create_all(connection, checkfirst=False)
        connection.execute(sa.insert(schema.version).values(version_num=schema.NEWEST))
    elif found < schema.NEWEST:
        _migrate(connection)


def version(connection: sa.Connection, name: str) -> str | None:
    """The current step of the schema, or None in a database without one. Only reads. Raises StateError for a newer one
    than this program knows."""
    if not sa.inspect(connection).has_table(schema.version.name):
        return None
    found: str | None = connection.execute(sa.select(schema.version.c.version_num)).scalar_one_or_none()
    if found is not None and found > schema.NEWEST:
        raise StateError(
            f"the state store {name} was written by a newer Lakesweep (its schema is {found}, "
            f"this version supports up to {schema.NEWEST}): run that version, or name another database"
        )
    return found


def _migrate(connection: sa.Connection) -> None:
    from alembic import command  # noqa: PLC0415 - heavy, and rarely needed
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config()
    config.set_main_option("script_location", "lakesweep.state:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
