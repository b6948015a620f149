"""The one Spark session of this process: started when it is first needed, kept, watched, and started again if lost.

Every call into Spark blocks, so all of them run in threads; the event loop only waits. A cancelled caller cancels
its jobs. A JVM, cluster or Connect server that is gone ends the call with EngineFailed and one sentence, and the
next call starts anew. Nothing here knows what the jobs do.
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

from lakesweep.engines.spark import backends, startup
from lakesweep.engines.spark.backends import SparkConfig
from lakesweep.engines.spark.errors import understood
from lakesweep.model.errors import EngineFailed, LakesweepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_log = structlog.get_logger(__name__)

_THREADS = 8
"""Tables whose jobs may be under way at one time; each thread holds a connection to the JVM."""
_LOOK_SECONDS = 2.0
"""How often a running job's cluster is looked at."""

_shared: dict[SparkConfig, SparkRuntime] = {}
_shared_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLabel:
    """How one table's run is called in the Spark UI."""

    group: str
    description: str


def shared_runtime(config: SparkConfig) -> SparkRuntime:
    """The runtime of these settings; whoever asks for it closes it, and the last one stops Spark."""
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
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="spark")

    async def session(self) -> SparkSession:
        """The living session, started if need be."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._living)

    async def run(self, session: SparkSession, label: JobLabel, work: Callable[[SparkSession], T]) -> T:
        """Some work with the session, under the label. It is over when this returns or raises."""
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
            raise EngineFailed(f"{exc}; a new Spark session starts with the next table") from exc

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
        if self.config.remote is None:
            startup.check_java()
        startup.check_reachable(self.config.where)
        try:
            return self._backend.start()
        except LakesweepError:
            raise
        except Exception as exc:  # whatever a vendor raises, the sentence is ours
            raise EngineFailed(f"no Spark session at {self.config.where}: {understood(str(exc))}") from exc

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
                raise  # this machine's own disk
            raise understood(str(exc)) from exc

    async def _watch(self, session: SparkSession, running: asyncio.Future[T]) -> None:
        """Return when the work is done; raise _Lost when it never will be."""
        alone_since: float | None = None
        while not (await asyncio.wait([running], timeout=_LOOK_SECONDS))[0]:
            if await asyncio.to_thread(self._backend.working, session):
                alone_since = None
                continue
            alone_since = alone_since or time.monotonic()
            if time.monotonic() - alone_since >= self.config.patience_seconds:
                raise _Lost(self._backend.lost())

    async def _cancel(self, session: SparkSession, label: JobLabel, running: asyncio.Future[T]) -> None:
        """Again and again: between two jobs of the work there is nothing to cancel."""
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


class _Lost(Exception):
    """What ran the jobs is gone."""
