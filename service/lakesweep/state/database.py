"""One database behind the SQL store: its transactions and its errors.

`sqlite.py`, `postgres.py` and `memory.py` open one each. Only StateError leaves this module when a driver fails, and no
message or name here ever contains a password."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from lakesweep import aio
from lakesweep.model.errors import StateError
from lakesweep.ports.clock import Clock
from lakesweep.state import upgrade

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[sa.Connection], T]
"""The body of one transaction. It runs where it may block: in a thread, in a greenlet that awaits for it, or, if
the database is in memory, at once."""


class Driver(Protocol):
    """The differences between databases once they are open."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Errors that the driver raises itself, not through SQLAlchemy."""

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT with an ON CONFLICT clause."""

    async def run(self, work: Work[T]) -> T:
        """One transaction: commit at the end, roll back on any error."""

    async def aclose(self) -> None: ...


class Database:
    """An opened and migrated database."""

    def __init__(self, driver: Driver, name: str, clock: Clock, *, has_clock: bool) -> None:
        self._driver = driver
        self._errors: tuple[type[Exception], ...] = (SQLAlchemyError, OSError, *driver.errors)
        self._clock = clock
        self.has_clock = has_clock
        """Does it have its own clock?"""
        self._inserts: dict[sa.Table, sa.Insert] = {}
        self._upserts: dict[tuple[sa.Table, tuple[str, ...]], sa.Insert] = {}
        self.name = name

    @classmethod
    async def open(cls, driver: Driver, name: str, clock: Clock, *, has_clock: bool = False) -> Database:
        """Bring the schema up to date first. `clock` is this machine's, and the store's unless it has its own."""
        database = cls(driver, name, clock, has_clock=has_clock)
        try:
            async with upgrade.one_at_a_time():
                await database.run(lambda connection: upgrade.to_newest(connection, name))
        except BaseException:
            await database.aclose()
            raise
        return database

    async def run(self, work: Work[T]) -> T:
        """One transaction: commit at the end, roll back on any error, translate a driver's error. A cancelled caller
        waits for its end: a connection dropped in the middle may keep its locks."""
        return await aio.finish_shielded(self._run(work))

    def now(self, connection: sa.Connection) -> datetime:
        """The store's clock. With PostgreSQL it is the server's, read after all locks were acquired."""
        if not self.has_clock:
            return self._clock.now()
        found: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return found.astimezone(UTC)

    def safely_now(self, connection: sa.Connection) -> datetime:
        """The earlier of the store's time and this machine's, for things that must not end because one clock is
        wrong."""
        return min(self.now(connection), self._clock.now())

    def insert_new(self, connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
        """Insert unless the key exists. Returns whether it was inserted."""
        statement = self._inserts.get(table)
        if statement is None:
            statement = self._inserts[table] = self._driver.insert(table).on_conflict_do_nothing()
        return connection.execute(statement, row).rowcount == 1

    def upsert(self, connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
        """Insert, or replace the row with the same key, in one step."""
        statement = self._upserts.get((table, tuple(row)))
        if statement is None:
            insert = self._driver.insert(table)
            new = {name: insert.excluded[name] for name in row}
            statement = insert.on_conflict_do_update(index_elements=table.primary_key.columns, set_=new)
            self._upserts[table, tuple(row)] = statement
        connection.execute(statement, row)

    async def aclose(self) -> None:
        await self._driver.aclose()

    async def _run(self, work: Work[T]) -> T:
        try:
            return await self._driver.run(work)
        except self._errors as exc:
            raise unusable(self.name, exc) from exc


def unusable(name: str, error: BaseException) -> StateError:
    return StateError(f"the state store {name} cannot be used: {sentence(error)}")


def sentence(error: BaseException) -> str:
    """The driver's message, without SQL, parameters and wrappers."""
    while isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig.__cause__ or error.orig
    return str(error).strip().partition("\n")[0] or f"no answer in time ({type(error).__name__})"


class HasDatabase(Protocol):
    """A class whose methods are one transaction each."""

    database: Database


Store = TypeVar("Store", bound=HasDatabase)


def transaction(
    method: Callable[Concatenate[Store, sa.Connection, P], T],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Run a method in one transaction, and pass it the connection."""

    @functools.wraps(method)
    async def in_transaction(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda connection: method(self, connection, *args, **kwargs))

    return in_transaction
