"""The only Spark session of this process: started on first use, kept, watched, and started again if lost.

Every call into Spark blocks, so all of them run in threads; the event loop only waits. A cancelled caller cancels its
jobs. If the JVM, the cluster or the Connect server is gone, the call ends with EngineFailed and one sentence, and the
next call starts a new session. Nothing here knows what the jobs do.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import structlog

from lakesweep.engines.spark import backends, driver, startup
from lakesweep.engines.spark.config import SparkConfig
from lakesweep.engines.spark.errors import understood
from lakesweep.model.errors import EngineFailed, LakesweepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_log = structlog.get_logger(__name__)

_THREADS = 8
"""Tables whose jobs may run at one time; each thread has a connection to the JVM."""
_LOOK_SECONDS = 2.0
"""How often the cluster of a running job is checked."""

_shared: dict[SparkConfig, SparkRuntime] = {}
_shared_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLabel:
    """The name of one table's run in the Spark UI."""

    group: str
    description: str


def shared_runtime(config: SparkConfig) -> SparkRuntime:
    """The runtime for these settings. The caller closes it, and the last one to close it stops Spark."""
    with _shared_lock:
        runtime = _shared.setdefault(config, SparkRuntime(config))
        runtime.users += 1
        return runtime


class SparkRuntime:
    """A session and the threads that use it."""

    def __init__(self, config: SparkConfig) -> None:
        self.config = config
        self.users = 0
        self._backend = backends.choose(config)
        self._starting = threading.Lock()
        self._session: SparkSession | None = None
        self._reached: list[tuple[SparkSession, str]] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="spark")

    @property
    def cold(self) -> bool:
        """Would `session` have to start a session?"""
        return self._session is None

    async def session(self) -> SparkSession:
        """The live session, started if necessary."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._living)

    async def run(self, session: SparkSession, label: JobLabel, work: Callable[[SparkSession], T]) -> T:
        """Run some work with the session under the label. It has ended when this returns or raises."""
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, self._labelled, session, label, work)
        try:
            await self._watch(session, running)
            return await running
        except (asyncio.CancelledError, _Lost) as exc:
            await self._cancel(session, label, running)
            if isinstance(exc, asyncio.CancelledError):
                raise
            await asyncio.to_thread(self._discard, session)
            raise SessionLost(f"{exc}; a new Spark session starts with the next table") from exc

    def reaches(self, session: SparkSession, place: str, *, now: bool = False) -> bool:
        """Is it known that the session's executors reach a place? With `now` record that they do."""
        if now:
            self._reached = [*(one for one in self._reached if one[0] is session), (session, place)]
        return any(one is session and known == place for one, known in self._reached)

    async def aclose(self) -> None:
        """Stop Spark if nobody else in this process uses it."""
        with _shared_lock:
            self.users -= 1
            last = self.users <= 0
            if last:
                _shared.pop(self.config, None)
        if last:
            await asyncio.to_thread(self._stop)

    def _living(self) -> SparkSession:
        with self._starting:
            if self._session is not None and not self._backend.alive(self._session):
                _log.warning("spark_session_lost", where=self.config.where)
                self._backend.forget(self._session)
                self._session = None
            if self._session is None:
                self._session = self._start()
            return self._session

    def _start(self) -> SparkSession:
        if self.config.remote is not None or driver.running_here() is None:
            if self.config.remote is None:
                startup.check_java()
            startup.check_reachable(self.config.where)
        try:
            return self._backend.start()
        except LakesweepError:
            raise
        except Exception as exc:  # any error of any vendor becomes one of ours
            where = f"{self.config.where} ({self.config.setting})"
            raise EngineFailed(f"cannot start a Spark session at {where}: {understood(str(exc))}") from exc

    def _labelled(self, session: SparkSession, label: JobLabel, work: Callable[[SparkSession], T]) -> T:
        try:
            self._backend.label(session, label.group, label.description)
            return work(session)
        except LakesweepError:
            raise
        except Exception as exc:
            if not self._backend.alive(session):
                raise _Lost(self._backend.lost()) from exc
            if isinstance(exc, OSError | pa.ArrowException):
                raise  # this machine's own disk is enough
            raise understood(str(exc)) from exc

    async def _watch(self, session: SparkSession, running: asyncio.Future[T]) -> None:
        """Return when the work is done; raise _Lost if it never will be."""
        alone_since: float | None = None
        while not (await asyncio.wait([running], timeout=_LOOK_SECONDS))[0]:
            if await asyncio.to_thread(self._backend.working, session):
                alone_since = None
                continue
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since >= self.config.patience_seconds:
                raise _Lost(self._backend.lost())

    async def _cancel(self, session: SparkSession, label: JobLabel, running: asyncio.Future[T]) -> None:
        """Repeat the cancellation: between two jobs there is nothing to cancel."""
        for _ in range(_CANCEL_TRIES):
            if running.done():
                break
            with suppress(Exception):
                await asyncio.to_thread(self._backend.cancel, session, label.group)
            await asyncio.wait([running], timeout=_CANCEL_SECONDS)
        if running.done() and not running.cancelled():
            running.exception()

    def _discard(self, session: SparkSession) -> None:
        with self._starting:
            if self._session is session:
                self._backend.forget(session)
                self._session = None

    def _stop(self) -> None:
        with self._starting:
            if self._session is not None:
                self._backend.stop(self._session)
                self._session = None
        self._threads.shutdown(wait=False, cancel_futures=True)


_CANCEL_TRIES = 20
_CANCEL_SECONDS = 0.5


class SessionLost(EngineFailed):
    """The session is gone."""


class _Lost(Exception):
    """The JVM, cluster or server that ran the jobs is gone."""
