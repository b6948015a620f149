"""Open a PostgreSQL database as a state store: a small pool, and the server's own clock. No message or name here ever
contains a password."""

from __future__ import annotations

import functools
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lakesweep.model.errors import SettingsError
from lakesweep.ports.clock import Clock
from lakesweep.state import upgrade
from lakesweep.state.database import Database, T, Work, sentence, unusable

CONNECT_SECONDS = 5.0
"""A server that does not accept a connection in this time is unreachable."""
STATEMENT_SECONDS = 15.0
"""No statement here is long: one that takes this long is waiting for a lock, and a lease is not much longer."""
IDLE_SECONDS = 10.0
"""A transaction that is idle for this long belongs to a replica that is frozen or cut off. The server ends it before
others that wait for its locks give up."""
POOL_SIZE = 5
"""Connections per replica. All transactions are short, so waiting for a connection is short as well."""


async def open_postgres(url: str, clock: Clock) -> Database:
    """Open a PostgreSQL database by any URL that libpq understands. `clock` is this machine's."""
    return await Database.open(_Pool(_engine(url)), public_name(url), clock, has_clock=True)


async def read_version(url: str) -> str | None:
    """The version of the schema in a PostgreSQL database, None without one. Only reads, in a read-only transaction."""
    name = public_name(url)
    engine = _engine(url).execution_options(postgresql_readonly=True)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(upgrade.version, name)
    except (SQLAlchemyError, OSError, *_Pool.errors) as exc:
        raise unusable(name, exc) from exc
    finally:
        await engine.dispose()


class _Pool:
    """Implements Driver."""

    errors = (asyncpg.PostgresError, asyncpg.InterfaceError)
    insert = staticmethod(postgresql.insert)

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def run(self, work: Work[T]) -> T:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def aclose(self) -> None:
        await self._engine.dispose()


def public_name(url: str) -> str:
    """The URL without password and options, for messages."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{host}{parts.path}"


def _engine(url: str) -> AsyncEngine:
    if url.count("@") != urlsplit(url).netloc.count("@") or url.count("@") > 1:
        # Without this check, parts of the password could become a host name and appear in messages.
        raise SettingsError(
            "state.url: an @ / ? or # inside a user name, password or option is written %40 %2F %3F %23"
        )
    return create_async_engine(
        "postgresql+asyncpg://",
        async_creator=functools.partial(_connect, url),
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=STATEMENT_SECONDS,
        pool_pre_ping=True,  # after a restart of the server only a new connection is needed
    )


async def _connect(url: str) -> asyncpg.Connection:
    # The driver parses the URL itself, so everything that libpq knows (sslmode, several hosts, sockets) works.
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
    except (ValueError, OverflowError) as exc:
        raise SettingsError(f"state.url: {public_name(url)} is not a PostgreSQL address: {sentence(exc)}") from exc
    # Not as a startup parameter, which poolers like PgBouncer refuse.
    await connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_SECONDS * 1000:.0f}")
    return connection
