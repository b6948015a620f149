"""Ctrl-C while a command runs: the first one requests a stop, the second one ends the process.

In a notebook commands run outside the main thread, which alone hears of Ctrl-C. There the caller passes it on.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

from lakesweep.aio import StopRequest
from lakesweep.cli import screen


@dataclass(slots=True)
class _Caller:
    """Where the caller of a command in a thread leaves its interrupt."""

    interrupted: bool = False
    listeners: list[Callable[[], None]] = field(default_factory=list)


_caller: ContextVar[_Caller | None] = ContextVar("caller", default=None)


@contextmanager
def from_caller() -> Iterator[Callable[[], None]]:
    """Yields a function that interrupts commands which run in this context, in any thread, now or later."""
    caller = _Caller()

    def interrupt() -> None:
        caller.interrupted = True
        for listener in tuple(caller.listeners):
            listener()

    before = _caller.set(caller)
    try:
        yield interrupt
    finally:
        _caller.reset(before)


@contextmanager
def stop_on_interrupt(stop: StopRequest, why: str) -> Iterator[None]:
    """While the block runs, Ctrl-C requests a stop for this reason. Outside the main thread the caller's does."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        with _stop_by_caller(stop, why):
            yield
        return
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()

    def request_stop() -> None:
        signal.signal(signal.SIGINT, before)  # the second one ends the process, as usual
        screen.complain("stopping after the requests in progress; press Ctrl-C again to stop at once")
        stop.end(why, by_user=True)

    loop.add_signal_handler(signal.SIGINT, request_stop)
    try:
        yield
    finally:
        if not stop.is_set():
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stop_by_caller(stop: StopRequest, why: str) -> Iterator[None]:
    caller = _caller.get()
    if caller is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def listener() -> None:
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(partial(stop.end, why, by_user=True))

    caller.listeners.append(listener)
    try:
        if caller.interrupted:
            stop.end(why, by_user=True)
        yield
    finally:
        caller.listeners.remove(listener)
