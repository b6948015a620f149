"""Open a SQLite file as a state store: one connection, which takes the write lock at BEGIN, so there is one writer.

A transaction runs as a whole in the single thread that owns the connection: sending each statement to it and waiting
for the result would cost several times as much as SQLite itself."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import SQLAlchemyError

from lakesweep.cleanup import private_files
from lakesweep.ports.clock import Clock
from lakesweep.state import upgrade
from lakesweep.state.database import Database, T, Work, unusable

BUSY_SECONDS = 15.0
"""No transaction here is long: one that takes this long is waiting for a lock, and a lease is not much longer."""


async def open_sqlite(path: str, clock: Clock) -> Database:
    name = f"sqlite:///{path}"
    try:
        await asyncio.to_thread(_prepare_file, path)
    except (sqlite3.Error, OSError) as exc:
        raise unusable(name, exc) from exc
    return await Database.open(_File(_engine(path)), name, clock)


def read_version(path: str) -> str | None:
    """The version of the file's schema, None without one. Only reads; the file must exist."""
    name = f"sqlite:///{path}"
    # Without a log the file is complete, and SQLite need not put its own files beside it, which it would leave there.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    address = f"{Path(path).absolute().as_uri()}?{mode}"
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS),
        poolclass=sa.NullPool,
    )
    try:
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{path} is not writable")
        with engine.connect() as connection:
            return upgrade.version(connection, name)
    except (SQLAlchemyError, sqlite3.Error, OSError) as exc:
        raise unusable(name, exc) from exc


class _File:
    """Implements Driver. Its thread ends with it."""

    errors = (sqlite3.Error,)
    insert = staticmethod(sqlite.insert)

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._connection: sa.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")

    async def run(self, work: Work[T]) -> T:
        until = time.monotonic() + BUSY_SECONDS
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work, until)

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)

    def _close(self) -> None:
        self._forget_connection()
        self._engine.dispose()

    def _forget_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _transaction(self, work: Work[T], until: float) -> T:
        if time.monotonic() > until:
            # While another process holds the file, callers queued here must not each wait in turn.
            raise TimeoutError(f"no write lock within {BUSY_SECONDS:.0f} s")
        try:
            # Getting it from the engine each time would cost as much as most transactions.
            connection = self._connection = self._connection or self._engine.connect()
            with connection.begin():
                return work(connection)
        except BaseException:
            self._forget_connection()  # whatever state it is in
            raise


def _prepare_file(path: str) -> None:
    """Prepare the file for the engine, or raise the reason why not, before the driver starts a thread on it."""
    private_files.make_directory(Path(path).parent)
    private_files.make_file(Path(path))
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")  # a property of the file from now on
            except sqlite3.OperationalError as exc:
                # If several processes switch a new file to WAL, all but one fail at once, without waiting.
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return


def _engine(path: str) -> sa.Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=path), poolclass=sa.StaticPool, connect_args={"timeout": BUSY_SECONDS}
    )
    listen_to(engine)
    return engine


def listen_to(engine: sa.Engine) -> None:
    """Prepare every connection of an engine."""
    sa.event.listen(engine, "connect", _prepare_connection)
    sa.event.listen(engine, "begin", _begin_immediate)


def _prepare_connection(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we begin transactions, not the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = FULL")  # an intent is on disk before the batch it announces
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_immediate(connection: sa.Connection) -> None:
    # A transaction that reads first and writes later would fail at once if another wrote in between.
    raw(connection).execute("BEGIN IMMEDIATE")  # through SQLAlchemy it takes as long as a query


def raw(connection: sa.Connection) -> sqlite3.Connection:
    """The driver's own connection."""
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)  # noqa: S101 - for the type checker
    return found
