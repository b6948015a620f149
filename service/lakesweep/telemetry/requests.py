"""Count the requests of one run to its stores. Every store calls `sent` for each request, including retries.

Everything that a task starts counts for the same run: tasks inherit the context, and so do `asyncio.to_thread` and the
like. A request that belongs to no run is not counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal

from lakesweep.model.requests import Requests

Kind = Literal["list", "get", "head", "put", "delete", "bytes_read"]
"""A kind of request, or bytes read."""


_NOT_AGAIN = (_READ_ONCE, _BYTES_ONCE) = ("read_once", "bytes_once")


class RequestCount:
    """The requests of one run so far. Thread-safe."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._numbers[name] += number

    @property
    def so_far(self) -> Requests:
        with self._lock:
            return Requests(**{name: number for name, number in self._numbers.items() if name not in _NOT_AGAIN})

    @property
    def not_again(self) -> Requests:
        """The requests that the next cycle need not send, because the results are in a cache."""
        with self._lock:
            return Requests(get=self._numbers[_READ_ONCE], bytes_read=self._numbers[_BYTES_ONCE])


_CURRENT: ContextVar[RequestCount | None] = ContextVar("requests", default=None)
_SEEN: ContextVar[RequestCount | None] = ContextVar("reads", default=None)


def counting(count: RequestCount) -> AbstractContextManager[RequestCount]:
    """Inside the block, requests of this task and of tasks that it starts count here."""
    return _bound(_CURRENT, count)


def watching() -> AbstractContextManager[RequestCount]:
    """Inside the block, reads of this task are also counted here: an object may come from a cache."""
    return _bound(_SEEN, RequestCount())


@contextmanager
def _bound(variable: ContextVar[RequestCount | None], count: RequestCount) -> Iterator[RequestCount]:
    token = variable.set(count)
    try:
        yield count
    finally:
        variable.reset(token)


def sent(kind: Kind, number: int = 1) -> None:
    """Count a request, or several, or bytes read."""
    if count := _CURRENT.get():
        count.add(kind, number)
    if kind == "get" and (seen := _SEEN.get()):
        seen.add(kind, number)


def read_once(size_bytes: int) -> None:
    """An object was read that is now in a cache."""
    if count := _CURRENT.get():
        count.add(_READ_ONCE)
        count.add(_BYTES_ONCE, size_bytes)


def not_sent(kind: Kind, number: int = 1) -> None:
    """Used instead of `sent` where nothing is counted."""
