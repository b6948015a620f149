"""How the service ends: the first signal requests it, the second ends it at once, and time ends it in any case.

Whatever is cut off is safe: nothing is deleted without a journal entry, and the next start goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

log = structlog.get_logger()

ORDERLY_SHARE = 0.7
"""Of the grace time: so long running batches may take to end by themselves. The rest is for giving back leases."""


class Shutdown:
    """One service's way out."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.drained = False
        """Set once all work has ended and every lease is given back: what is left may be cut off."""
        self._grace_seconds = 0.0

    @contextmanager
    def listening(self, grace_seconds: float) -> Iterator[None]:
        self._grace_seconds = grace_seconds
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._heard, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def request(self) -> None:
        """Begin to end. A thread sees to it that this takes no longer than the grace time."""
        if self.requested.is_set():
            return
        self.requested.set()
        log.info("shutdown_begun", grace_seconds=self._grace_seconds)
        timer = threading.Timer(self._grace_seconds, self._out_of_time)
        timer.daemon = True
        timer.start()

    @property
    def orderly_seconds(self) -> float:
        """How long to wait for running batches before they are cut off."""
        return self._grace_seconds * ORDERLY_SHARE

    def _heard(self, number: signal.Signals) -> None:
        if self.requested.is_set():
            log.warning("shutdown_forced", signal=number.name)
            os._exit(128 + number)
        self.request()

    def _out_of_time(self) -> None:
        # Not the event loop's business: it may be what hangs.
        os._exit(0 if self.drained else 1)
