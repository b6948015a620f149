"""Threads of its own for every tenant. A tenant whose disk hangs blocks its own threads and nobody else's.

`TenantThreads` is the event loop's default executor, so that every `asyncio.to_thread` goes through it. It looks at
the tenant that the calling task works for, which `aio.working_for` sets. Threads end after a while without work, and
none of them keeps the process from ending.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from lakesweep.aio import TENANT
from lakesweep.telemetry import activity

T = TypeVar("T")

MAX_THREADS = 8
"""Of one tenant, and of the service itself."""
IDLE_SECONDS = 30.0


class TenantThreads(ThreadPoolExecutor):
    """Gives each call to the threads of the tenant that it is made for."""

    def __init__(self, most: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        super().__init__(1)  # never used: the event loop insists on this class
        self._most = most
        self._idle_seconds = idle_seconds
        self._pools: dict[str, _Pool] = {}

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        tenant = TENANT.get()
        if tenant not in self._pools:
            self._pools[tenant] = _Pool(f"tenant {tenant}" if tenant else "service", self._most, self._idle_seconds)
        future: Future[T] = Future()
        future.add_done_callback(lambda _: activity.touch())
        self._pools[tenant].put(future, lambda: fn(*args, **kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """A thread that hangs is not waited for: it ends with the process."""
        for pool in self._pools.values():
            pool.close()


class _Pool:
    """Daemon threads that come with work and go without it."""

    def __init__(self, name: str, most: int, idle_seconds: float) -> None:
        self._name = name
        self._most = most
        self._idle_seconds = idle_seconds
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def put(self, future: Future[Any], call: Callable[[], Any]) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append((future, call))
            if self._idle < len(self._calls) and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            else:
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (next_call := self._next()) is not None:
            future, call = next_call
            del next_call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001  # the caller that waits gets it
                future.set_exception(exc)
            else:
                future.set_result(result)
                del result
            del future, call  # what a thread waits with must not keep a large answer alive

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Another call; None if this thread is to end."""
        with self._changed:
            self._idle += 1
            due = self._changed.wait_for(lambda: self._calls or self._closed, self._idle_seconds)
            self._idle -= 1
            if due and self._calls:
                return self._calls.popleft()
            self._threads -= 1
            return None
