"""Methods that are one transaction each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from lakesweep.state.database import Database

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

P = ParamSpec("P")
T = TypeVar("T")


class HasDatabase(Protocol):
    """What such methods belong to."""

    database: Database


Store = TypeVar("Store", bound=HasDatabase)


def transaction(
    method: Callable[Concatenate[Store, AsyncConnection, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Make a method one transaction, and give it the connection."""

    @functools.wraps(method)
    async def in_transaction(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda connection: method(self, connection, *args, **kwargs))

    return in_transaction
