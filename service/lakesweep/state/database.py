"""One database behind the SQL store: how it is asked, and what its errors are called.

`sqlite.py` and `postgres.py` open one each. Nothing but StateError leaves this module when a driver fails, and no
message or name here ever holds a password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lakesweep.model.errors import StateError
from lakesweep.ports.clock import Clock
from lakesweep.state import upgrade

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")


Work = Callable[["AsyncConnection"], Coroutine[Any, Any, T]]
"""What is done inside one transaction. It waits for nothing but its connection."""


class Driver(Protocol):
    """What differs between databases once they are open."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the driver raises by itself, past SQLAlchemy."""
        ...

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what to do if the row is there."""
        ...

    async def run(self, work: Work[T]) -> T:
        """One transaction: commit at the end, roll back on any error."""
        ...

    async def aclose(self) -> None:
        """Give back the connections."""
        ...


class Database:
    """An opened and migrated database."""

    def __init__(self, driver: Driver, name: str, clock: Clock | None) -> None:
        self._driver = driver
        self._errors: tuple[type[Exception], ...] = (SQLAlchemyError, OSError, *driver.errors)
        self._clock = clock
        self._inserts: dict[sa.Table, sa.Insert] = {}
        self.name = name

    @classmethod
    async def open(cls, driver: Driver, name: str, clock: Clock | None) -> Database:
        """Bring the schema up to date first. `clock` is the store's, or None for one with its own."""
        database = cls(driver, name, clock)
        try:
            async with upgrade.one_at_a_time():
                await database.run(lambda connection: upgrade.to_newest(connection, name))
        except BaseException:
            await database.aclose()
            raise
        return database

    async def run(self, work: Work[T]) -> T:
        """One transaction: commit at the end, roll back on any error, call a driver's error by our name.

        A cancelled caller waits for its end: a connection dropped half way may keep its locks.
        """
        transaction = asyncio.create_task(self._run(work), name=f"transaction on {self.name}")
        try:
            return await asyncio.shield(transaction)
        except asyncio.CancelledError:
            await asyncio.wait([transaction])
            raise

    @property
    def has_clock(self) -> bool:
        """Is its clock another one than ours?"""
        return self._clock is None

    async def now(self, connection: AsyncConnection) -> datetime:
        """The store's clock. With PostgreSQL it is the server's, read after every lock that was waited for."""
        if self._clock:
            return self._clock.now()
        found: datetime = (await connection.execute(sa.select(sa.func.clock_timestamp()))).scalar_one()
        return found.astimezone(UTC)

    async def insert_new(self, connection: AsyncConnection, table: sa.Table, row: Mapping[str, Any]) -> bool:
        """Insert unless the key is there; whether it was inserted."""
        statement = self._inserts.get(table)
        if statement is None:
            statement = self._inserts[table] = self._driver.insert(table).on_conflict_do_nothing()
        return (await connection.execute(statement, row)).rowcount == 1

    async def upsert(
        self,
        connection: AsyncConnection,
        table: sa.Table,
        row: Mapping[str, Any],
        *,
        only: sa.ColumnElement[bool] | None = None,
    ) -> None:
        """Insert, or replace the row with the same key, in one step; `only` says of which rows that is allowed."""
        keys = table.primary_key.columns
        insert = self._driver.insert(table).values(row)
        await connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=row, where=only))

    async def aclose(self) -> None:
        """Give back the connections."""
        await self._driver.aclose()

    async def _run(self, work: Work[T]) -> T:
        try:
            return await self._driver.run(work)
        except self._errors as exc:
            raise unusable(self.name, exc) from exc


def unusable(name: str, error: BaseException) -> StateError:
    """A driver's error by our name."""
    return StateError(f"the state store {name} cannot be used: {sentence(error)}")


def sentence(error: BaseException) -> str:
    """What the driver said, without SQL, parameters and wrappers."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig.__cause__ or error.orig
    return str(error).strip().partition("\n")[0] or f"no answer in time ({type(error).__name__})"
