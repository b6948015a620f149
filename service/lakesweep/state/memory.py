"""The state store of demos, tests and calls that leave nothing behind: a SQLite database in memory. A transaction runs
at once where it is called, without a thread: it takes a fraction of a millisecond."""

from __future__ import annotations

import sqlite3
import threading
from functools import cache

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from lakesweep.ports.clock import Clock
from lakesweep.state import upgrade
from lakesweep.state.database import Database, T, Work
from lakesweep.state.sqlite import listen_to, raw
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
    insert = staticmethod(sqlite.insert)

    def __init__(self) -> None:
        self._connection = _engine().connect()
        raw(_with_tables()).backup(raw(self._connection))
        self._turn = threading.Lock()

    async def run(self, work: Work[T]) -> T:
        with self._turn, self._connection.begin():
            return work(self._connection)

    async def aclose(self) -> None:
        """The data stays."""


@cache
def _with_tables() -> sa.Connection:
    """An empty database to copy: creating the tables takes longer than most uses of one."""
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
