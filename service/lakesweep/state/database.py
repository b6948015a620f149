"""One database behind the SQL store: how it is opened, migrated and asked, and what its errors are called.

SQLite has one connection per store and takes the write lock at BEGIN, so there is one writer at a time.
PostgreSQL has a small pool and its own clock. Nothing but StateError leaves this module when a driver fails,
and no message or name here ever holds a password.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from lakesweep.cleanup.ports import Clock
from lakesweep.model.errors import SettingsError, StateError
from lakesweep.state.schema import VERSION_TABLE

CONNECT_SECONDS = 5.0
"""A server that does not take a connection in this time is out of reach."""
STATEMENT_SECONDS = 15.0
"""No statement here is long: one that takes this long waits for somebody else, and a lease is not much longer."""
POOL_SIZE = 5
"""Connections per replica. All transactions are short, so waiting for one is short as well."""
MIGRATION_LOCK = 0x6C616B65
"""The advisory lock that replicas queue on before they migrate; an arbitrary number of our own."""

_DRIVER_ERRORS = (SQLAlchemyError, sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
_one_migration = threading.Lock()
T = TypeVar("T")


class Database:
    """An opened and migrated database."""

    def __init__(self, engine: AsyncEngine, name: str, clock: Clock | None) -> None:
        self._engine = engine
        self._clock = clock
        self.name = name

    @classmethod
    async def open_sqlite(cls, path: str, clock: Clock) -> Database:
        """Open or create a SQLite file, with its directory."""
        name = f"sqlite:///{path}"
        try:
            await asyncio.to_thread(_prepare_sqlite_file, path)
        except (sqlite3.Error, OSError) as exc:
            raise StateError(f"the state store {name} cannot be used: {_sentence(exc)}") from exc
        database = cls(_sqlite_engine(path), name, clock)
        await database._migrate()
        return database

    @classmethod
    async def open_postgres(cls, url: str) -> Database:
        """Open a PostgreSQL database by any address that libpq understands."""
        database = cls(_postgres_engine(url), public_name(url), None)
        await database._migrate()
        return database

    async def run(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """One transaction: commit at the end, roll back on any error, call a driver's error by our name.

        A cancelled caller waits for its end: a connection dropped half way may keep its locks.
        """
        transaction = asyncio.create_task(self._run(work), name=f"transaction on {self.name}")
        try:
            return await asyncio.shield(transaction)
        except asyncio.CancelledError:
            await asyncio.wait([transaction])
            raise

    async def now(self, connection: AsyncConnection) -> datetime:
        """The store's clock. With PostgreSQL it is the server's, read after every lock that was waited for."""
        if self._clock:
            return self._clock.now()
        found: datetime = (await connection.execute(sa.select(sa.func.clock_timestamp()))).scalar_one()
        return found.astimezone(UTC)

    async def insert_new(self, connection: AsyncConnection, table: sa.Table, row: Mapping[str, Any]) -> bool:
        """Insert unless the key is there; whether it was inserted."""
        statement = self._insert(table).values(row).on_conflict_do_nothing()
        return (await connection.execute(statement)).rowcount == 1

    async def upsert(self, connection: AsyncConnection, table: sa.Table, row: Mapping[str, Any]) -> None:
        """Insert, or replace the row with the same key."""
        await connection.execute(
            self._insert(table).values(row).on_conflict_do_update(index_elements=table.primary_key.columns, set_=row)
        )

    async def aclose(self) -> None:
        """Give back the connections."""
        await self._engine.dispose()

    def _insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        return sqlite.insert(table) if self._engine.dialect.name == "sqlite" else postgresql.insert(table)

    async def _run(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        try:
            async with self._engine.begin() as connection:
                return await work(connection)
        except _DRIVER_ERRORS as exc:
            raise StateError(f"the state store {self.name} cannot be used: {_sentence(exc)}") from exc

    async def _migrate(self) -> None:
        """Bring the schema up to date, one replica at a time, all steps or none."""
        # Alembic keeps its context in module globals, so one process migrates one database at a time. An
        # asyncio lock would belong to one event loop; the wait is rare and short.
        while not _one_migration.acquire(blocking=False):  # noqa: ASYNC110  # see above
            await asyncio.sleep(0.01)
        try:
            await self.run(self._upgrade_alone)
        except BaseException:
            await self.aclose()
            raise
        finally:
            _one_migration.release()

    async def _upgrade_alone(self, connection: AsyncConnection) -> None:
        if self._engine.dialect.name == "postgresql":  # on SQLite the BEGIN is the lock between processes
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        await connection.run_sync(self._upgrade)

    def _upgrade(self, connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", "lakesweep.state:migrations")
        config.attributes["connection"] = connection
        script = ScriptDirectory.from_config(config)
        known = {step.revision for step in script.walk_revisions()}
        found = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads()
        for revision in found:
            if revision not in known:
                raise StateError(
                    f"the state store {self.name} was written by a newer Lakesweep (its schema is {revision}, "
                    f"this version knows up to {max(known)}): run that version, or name another database"
                )
        command.upgrade(config, "head")


def public_name(url: str) -> str:
    """The address without password and options, for messages."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{host}{parts.path}"


def _prepare_sqlite_file(path: str) -> None:
    """Make the file ready for the engine, or say why not, before the driver starts a thread on it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=STATEMENT_SECONDS)) as connection:
        deadline = time.monotonic() + STATEMENT_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")  # a property of the file from now on
            except sqlite3.OperationalError as exc:
                # Of several processes that switch a new file over, all but one are told so without any wait.
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return


def _sqlite_engine(path: str) -> AsyncEngine:
    engine = create_async_engine(
        sa.URL.create("sqlite+aiosqlite", database=path),
        pool_size=1,
        max_overflow=0,
        pool_timeout=STATEMENT_SECONDS,
        connect_args={"timeout": STATEMENT_SECONDS},  # SQLite's busy timeout
    )
    sa.event.listen(engine.sync_engine, "connect", _prepare_connection)
    sa.event.listen(engine.sync_engine, "begin", _begin_immediate)
    return engine


def _prepare_connection(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we begin transactions, not the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = FULL")  # an intent is on disk before the batch it announces
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_immediate(connection: sa.Connection) -> None:
    # Read now, write later would fail at once, without any wait, if somebody else wrote in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _postgres_engine(url: str) -> AsyncEngine:
    if url.count("@") != urlsplit(url).netloc.count("@") or url.count("@") > 1:
        # Parsed as it stands, parts of the password would become a host name and turn up in messages.
        raise SettingsError(
            "state.url: an @ / ? or # inside a user name, password or option is written %40 %2F %3F %23"
        )
    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=functools.partial(_connect_postgres, url),
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=STATEMENT_SECONDS,
        pool_pre_ping=True,  # a server that was restarted costs nothing but a new connection
    )


async def _connect_postgres(url: str) -> asyncpg.Connection:
    # The driver reads the address itself, so everything libpq knows (sslmode, several hosts, sockets) works.
    try:
        return await asyncpg.connect(url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
    except (ValueError, OverflowError) as exc:
        raise SettingsError(f"state.url: {public_name(url)} is not a PostgreSQL address: {_sentence(exc)}") from exc


def _sentence(error: BaseException) -> str:
    """What the driver said, without SQL, parameters and wrappers."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig.__cause__ or error.orig
    return str(error).strip().partition("\n")[0] or f"no answer in time ({type(error).__name__})"
