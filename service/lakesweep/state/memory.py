"""The state store of demos, tests and calls that leave nothing behind: a SQLite database in memory.

A transaction runs at once where it is called, without a thread: it takes a fraction of a millisecond.
"""

from __future__ import annotations

import sqlite3
import threading
from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lakesweep.ports.clock import Clock
from lakesweep.state import upgrade
from lakesweep.state.database import Database, T, Work
from lakesweep.state.sqlite import listen_to
from lakesweep.state.store import SqlStateStore

_NAME = "memory://"


class MemoryStateStore(SqlStateStore):
    """The StateStore port in memory. It is forgotten with this object, not when it is closed."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(_MemoryDatabase(_Memory(), _NAME, clock, has_clock=False))


class _MemoryDatabase(Database):
    async def run(self, work: Work[T]) -> T:
        """A transaction awaits nothing, so no cancellation can meet it half way."""
        return await self._run(work)


class _Memory:
    """Implements Driver."""

    errors = (sqlite3.Error,)

    def __init__(self) -> None:
        self._connection = _empty()
        self._turn = threading.Lock()

    def insert(self, table: sa.Table) -> sqlite.Insert:
        return sqlite.insert(table)

    async def run(self, work: Work[T]) -> T:
        with self._turn, self._connection.begin():
            return work(self._connection)

    async def aclose(self) -> None:
        """The data stays."""


def _empty() -> sa.Connection:
    """A new database: a copy, because creating the tables anew takes longer than most of its uses."""
    connection = _engine().connect()
    _raw(_with_tables()).backup(_raw(connection))
    return connection


@cache
def _with_tables() -> sa.Connection:
    connection = _engine().connect()
    with connection.begin():
        upgrade.to_newest(connection, _NAME)
    return connection


@cache
def _engine() -> sa.Engine:
    """Each connection is a database. All share the compiled statements."""
    engine = sa.create_engine("sqlite://", poolclass=sa.NullPool, connect_args={"check_same_thread": False})
    listen_to(engine)
    return engine


def _raw(connection: sa.Connection) -> sqlite3.Connection:
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)  # noqa: S101 - for the type checker
    return found
