"""An event loop whose time is virtual and whose threads do not exist: what is handed to one runs at once, here."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(AssertionError):
    """Everybody waits and nothing will ever happen."""


class ReachesOut(BaseException):
    """The product looks for a real network, past every simulated port. No code may catch it."""


def _unlisted(task: asyncio.Task[Any]) -> None:
    """In the place of a list of all tasks, which nobody asks for here: keeping it up to date takes longer than running
    most of them."""


async def _at_once(function: Callable[..., T], /, *args: Any, **options: Any) -> T:
    """In the place of `asyncio.to_thread`."""
    return copy_context().run(function, *args, **options)


class _Waiting:
    """In the place of a selector: instead of sleeping, it moves the time on."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("every task waits for something that never comes")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """No sockets, no signals, no sleeping. `on_time` hears of every span that passes, in seconds."""

    def __init__(self, on_time: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self._selector = _Waiting(self)
        self._virtual = 0.0
        self._clock_resolution = 1e-6
        self.on_time = on_time
        self._made: list[asyncio.Task[Any]] = []
        self._begun: list[weakref.ref[Any]] = []
        self._reached_out: ReachesOut | None = None
        self.set_exception_handler(lambda *_: None)  # what killed processes leave behind is no news

    def time(self) -> float:
        return self._virtual

    def pass_time(self, seconds: float) -> None:
        self._virtual += seconds
        if self.on_time is not None:
            self.on_time(seconds)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except StopIteration as exc:
            future.set_exception(RuntimeError(str(exc)))
        except Exception as exc:  # noqa: BLE001 - the future carries it
            future.set_exception(exc)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Nobody is found."""
        raise self._outside(f"looks for {host}:{port}")

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Nobody is reached."""
        raise self._outside(f"connects to {address}")

    def _outside(self, what: str) -> ReachesOut:
        self._reached_out = self._reached_out or ReachesOut(f"the product {what}: no simulated port leads there")
        return self._reached_out

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._made.append(task)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        """As its parent does it, without what looks for mistakes of its callers."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """As its parent does it, without what has no meaning here."""
        ready = self._ready
        if not ready or self._scheduled:
            super()._run_once()
            return
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """As its parent does it: a list of weak references costs less than a set of them."""
        self._begun.append(weakref.ref(agen))

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to its end, then end whatever is left: the tasks of a process that was killed."""
        asyncio.set_event_loop(self)
        asyncio.tasks._all_tasks.add = _unlisted  # type: ignore[attr-defined]
        to_thread, asyncio.to_thread = asyncio.to_thread, _at_once
        try:
            answer = self.run_until_complete(work)
            if self._reached_out is not None:
                raise self._reached_out
            return answer
        finally:
            while left := [task for task in self._made if not task.done()]:
                self._made.clear()
                for task in left:
                    task.cancel()
                self.run_until_complete(asyncio.wait(left))
            self._made.clear()
            self._asyncgens.update(agen for one in self._begun if (agen := one()) is not None)
            if self._asyncgens:
                self.run_until_complete(self.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            asyncio.to_thread = to_thread
            del asyncio.tasks._all_tasks.add  # type: ignore[attr-defined]
