"""A Spark driver in this process: a JVM that it starts, or the session that its host already has. Uses private parts of
pyspark where there is no other way. Blocking."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from lakesweep.engines.spark import worker_daemon
from lakesweep.engines.spark.config import ALWAYS, DEFAULTS, SparkConfig
from lakesweep.model.errors import EngineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END_SECONDS = 20.0

_PYTHON = "PYSPARK_PYTHON"
_PYTHON_AT_START = os.environ.get(_PYTHON)

_driver = threading.Lock()
"""A process has one driver: a session must not start in a JVM that is shutting down."""

_DRIVER_DEFAULTS = {
    "spark.app.name": "lakesweep",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Tables that are planned side by side share the cores; first come, first served would let a small one wait.
    "spark.scheduler.mode": "FAIR",
    # Python workers live long and would keep what one large batch took. A million files take 700 MiB instead of 1,200,
    # and no more CPU; see docs/engines.md.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "1000000",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "4000000",
}
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# The first compiler takes 39.5 CPU seconds for a million files instead of 66. The serial collector keeps the heap
# small; the parallel one grows it to save time, which pays only with more cores. See docs/engines.md.
_COMPILER = "-XX:TieredStopAtLevel=1"
_SMALL_HEAP = "-XX:+UseSerialGC -Xms32m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
_FAST_HEAP = "-XX:+UseParallelGC"
_FEW_CORES = 4
_FEW_ARENAS = ("MALLOC_ARENA_MAX", "2")
"""For the JVM, which takes it from the environment that it is started with."""
_LOCAL_CORES = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")


def adopt() -> str:
    """Use the session that the host of this process has or is about to create, as under `spark-submit` or in a
    notebook. Returns its master."""
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415  # heavy

    return str(Session.builder.getOrCreate().sparkContext.master)


def running_here() -> str | None:
    """The master of the session that this process already has, if it has one."""
    pyspark = sys.modules.get("pyspark")
    active = pyspark.SparkContext._active_spark_context if pyspark else None  # noqa: SLF001  # asks without starting one
    return None if active is None else str(active.master)


class DriverBackend:
    """The driver is a JVM that this process starts."""

    _ours: ClassVar[Any] = None
    """The context that was started here last, with whatever settings."""

    def __init__(self, config: SparkConfig) -> None:
        self._config = config
        self._borrowed = False

    def start(self) -> SparkSession:
        """A new session, or the one that the host of this process already has."""
        with _driver:
            return self._start()

    def _start(self) -> SparkSession:
        from pyspark import SparkContext  # noqa: PLC0415  # heavy
        from pyspark.sql import SparkSession as Session  # noqa: PLC0415  # heavy

        active = SparkContext._active_spark_context  # noqa: SLF001  # the only way to ask without starting one
        if active is not None and active is DriverBackend._ours:
            raise EngineFailed(
                f"this process still runs Spark at {active.master} under the previous settings: "
                f"this table is planned at {self._config.master} once that session ends"
            )
        both_local = self._config.local and active is not None and active.master.startswith("local")
        if active is not None and not both_local and active.master != self._config.master:
            raise EngineFailed(
                f"this process already runs Spark at {active.master}: tables are planned at {self._config.master} "
                "once that session ends"
            )
        self._borrowed = active is not None
        if active is not None:
            return self._beside(Session.builder.getOrCreate())
        self._choose_python()
        if self._config.local:
            os.environ.setdefault(*_FEW_ARENAS)
        builder = Session.builder.master(self._config.master)
        defaults = {**DEFAULTS, **_DRIVER_DEFAULTS, **(self._local_defaults() if self._config.local else {})}
        for name, value in {**defaults, **self._config.properties, **ALWAYS}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        DriverBackend._ours = session.sparkContext
        return session

    def _beside(self, host: SparkSession) -> SparkSession:
        """A new session in an existing context; the properties and views of the other session stay as they are."""
        session = host.newSession()
        for name, value in {**DEFAULTS, **self._config.properties}.items():
            with suppress(Exception):  # the memory, cores and classes of a running context are fixed
                session.conf.set(name, value)
        for name, value in ALWAYS.items():
            session.conf.set(name, value)
        DriverBackend._ours = None
        return session

    def alive(self, session: SparkSession) -> bool:
        """Does the JVM answer, with a context that is not stopped?"""
        try:
            return not session.sparkContext._jsc.sc().isStopped()  # noqa: SLF001  # as above
        except Exception:  # noqa: BLE001  # a dead JVM answers with whatever its socket says
            return False

    def working(self, session: SparkSession) -> bool:
        """Is there an executor besides the driver?"""
        if self._config.local:
            return self.alive(session)
        try:
            return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) > 1  # noqa: SLF001  # as above
        except Exception:  # noqa: BLE001  # as above
            return False

    def lost(self) -> str:
        if self._config.local:
            return "the JVM that runs Spark has ended"
        return f"no executor of the Spark cluster {self._config.master} is left"

    def label(self, session: SparkSession, group: str, description: str) -> None:
        """A job group, in the pool of this thread: tables at work side by side have threads of their own. Spark ignores
        pools unless its scheduler is fair, which only the host of a borrowed session decides."""
        session.sparkContext.setJobGroup(group, description)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)

    def cancel(self, session: SparkSession, group: str) -> None:
        session.sparkContext.cancelJobGroup(group)

    def stop(self, session: SparkSession) -> None:
        """Stop the session, unless it belongs to the host. The JVM ends too: the next session may need other memory or
        classes."""
        if self._borrowed:
            return
        with _driver:
            if self.alive(session):
                process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001  # as above
                session.stop()
                _let_end(process)
            self.forget(session)

    def forget(self, session: SparkSession) -> None:  # noqa: ARG002  # a process has only one
        """End the rest of the JVM, and make pyspark forget it."""
        from pyspark import SparkContext  # noqa: PLC0415  # heavy
        from pyspark.sql import SparkSession as Session  # noqa: PLC0415  # heavy

        context: Any = SparkContext
        gateway = context._gateway  # noqa: SLF001  # pyspark would go on using a dead one
        process = getattr(gateway, "proc", None)
        if process is not None and not self._borrowed:
            # First, because an orderly stop waits for answers that never come.
            process.kill()
            process.wait()
        with suppress(Exception):
            gateway.shutdown()
        context._gateway = context._jvm = context._active_spark_context = None  # noqa: SLF001  # as above
        Session._instantiatedSession = None  # noqa: SLF001  # as above

    def _local_defaults(self) -> dict[str, str]:
        heap = _SMALL_HEAP if local_cores(self._config.master) <= _FEW_CORES else _FAST_HEAP
        defaults = {**_LOCAL_DEFAULTS, "spark.driver.extraJavaOptions": f"{_COMPILER} {heap}"}
        if os.environ.get(_PYTHON) == sys.executable:  # another interpreter may not have this module
            defaults["spark.python.daemon.module"] = worker_daemon.MODULE
        return defaults

    def _choose_python(self) -> None:
        """pyspark takes the workers' interpreter only from the environment. Values of former settings are removed from
        it."""
        chosen = self._config.properties.get("spark.pyspark.python") or _PYTHON_AT_START
        if chosen is None and self._config.local:
            chosen = sys.executable
        os.environ.pop(_PYTHON, None)
        if chosen is not None:
            os.environ[_PYTHON] = chosen


def local_cores(master: str) -> float:
    """How many cores a session on this machine uses; infinitely many if its master does not say it in a known way."""
    found = _LOCAL_CORES.fullmatch(master)
    if found is None:
        return math.inf
    return (os.cpu_count() or 1) if found.group(1) == "*" else int(found.group(1) or 1)


def _let_end(process: subprocess.Popen[bytes] | None) -> None:
    """A JVM without any connection cleans up after itself and ends."""
    if process is None or process.stdin is None:
        return
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
