"""Ctrl-C and SIGTERM while a command runs: the first one requests a stop, a second Ctrl-C ends the process.

In a notebook commands run outside the main thread, which alone hears of Ctrl-C. There the caller passes it on. SIGTERM
belongs to the process's owner: a command takes it only in a process of its own.
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

    interrupted_by: str | None = None
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def interrupt(self, by: str) -> None:
        self.interrupted_by = by
        for listener in tuple(self.listeners):
            listener(by)


_CTRL_C = "Ctrl-C"
_SIGTERM = "SIGTERM"
_caller: ContextVar[_Caller | None] = ContextVar("caller", default=None)


@contextmanager
def from_caller() -> Iterator[Callable[[], None]]:
    """Yields a function that interrupts commands which run in this context, in any thread, now or later."""
    with _passed_on() as caller:
        yield partial(caller.interrupt, _CTRL_C)


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """While the block runs, SIGTERM is what the first Ctrl-C is: it requests a stop of the blocks below, or, if there
    is none, cancels this task. Only for a process of our own, and not where somebody handles or ignores SIGTERM."""
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    with _passed_on() as caller:

        def request_stop(*_: object) -> None:
            is_first = caller.interrupted_by is None
            has_listeners = bool(caller.listeners)
            caller.interrupt(_SIGTERM)
            if has_listeners:
                if is_first:
                    # By the loop: the main thread may be in the middle of writing.
                    loop.call_soon_threadsafe(screen.complain, "SIGTERM: stopping after the requests in progress")
            elif is_first and task is not None:
                loop.call_soon_threadsafe(task.cancel)
            else:
                raise KeyboardInterrupt  # something blocks the loop, such as a question

        # Not the loop's own way, which would wait for the answer to a question.
        signal.signal(signal.SIGTERM, request_stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stop_on_interrupt(stop: StopRequest, then: str) -> Iterator[None]:
    """While the block runs, Ctrl-C requests a stop; `then` says in the reason how it goes on. Outside the main thread
    the caller's does."""
    with _stop_by_caller(stop, then):
        if not _in_main_thread():
            yield
            return
        with _stop_by_ctrl_c(stop, then):
            yield


@contextmanager
def _stop_by_ctrl_c(stop: StopRequest, then: str) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()

    def request_stop() -> None:
        signal.signal(signal.SIGINT, before)  # the second one ends the process, as usual
        screen.complain("stopping after the requests in progress; press Ctrl-C again to stop at once")
        stop.end(_why(_CTRL_C, then), by_user=True)

    loop.add_signal_handler(signal.SIGINT, request_stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


@contextmanager
def _passed_on() -> Iterator[_Caller]:
    caller = _Caller()
    before = _caller.set(caller)
    try:
        yield caller
    finally:
        _caller.reset(before)


@contextmanager
def _stop_by_caller(stop: StopRequest, then: str) -> Iterator[None]:
    caller = _caller.get()
    if caller is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def listener(by: str) -> None:
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(partial(stop.end, _why(by, then), by_user=True))

    caller.listeners.append(listener)
    try:
        if caller.interrupted_by is not None:
            stop.end(_why(caller.interrupted_by, then), by_user=True)
        yield
    finally:
        caller.listeners.remove(listener)


def _why(by: str, then: str) -> str:
    return f"interrupted by {by}; {then}"


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread() and sys.platform != "win32"
