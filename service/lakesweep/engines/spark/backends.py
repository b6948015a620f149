"""The two ways to a Spark session: a driver in this process (`master`) and a Spark Connect server (`remote`).

The only module that uses private parts of pyspark. Blocking. pyspark is imported when it is first needed: a service
that never uses Spark pays nothing for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from lakesweep.engines.spark import startup
from lakesweep.model.errors import EngineFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN_PREFIX = "spark.lakesweep."
"""Prefix of the properties in `engine.spark.conf` that are meant for this engine."""
SCRATCH = f"{OWN_PREFIX}scratch"
"""The former name of `engine.spark.scratch`; still used where that is not set."""
PATIENCE = f"{OWN_PREFIX}executorWaitSeconds"
"""How long a job may be without any executor before it is given up."""

SMALL = f"{OWN_PREFIX}smallTableRows"
"""Up to how many listed objects and references together a table is joined in this process instead of on Spark."""

_SMALL_ROWS = 100_000
"""Their join takes some tens of megabytes."""
_PATIENCE_SECONDS = 180.0
"""Seconds. Longer than a cluster manager takes to start executors."""
_CONNECT_PARALLELISM = 32
"""Spark Connect does not say how many cores there are."""
_CONNECT_TRIES = 4
_END_SECONDS = 20.0

_PYTHON = "PYSPARK_PYTHON"
_PYTHON_AT_START = os.environ.get(_PYTHON)

_driver = threading.Lock()
"""A process has one driver: a session must not start in a JVM that is shutting down."""

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    # If Spark silently skipped a file of references, live files would look unreferenced.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Properties that the plan's correctness depends on."""
_DEFAULTS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
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
    # Takes 39.5 CPU seconds for a million files instead of 66; see docs/engines.md.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """Where Spark runs and with which properties. Equal values share one session."""

    master: str = "local[*]"
    remote: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    scratch: str | None = None
    """A place that driver and executors can both write to. None: a directory on this machine."""

    @property
    def where(self) -> str:
        """The address for messages, without what follows a semicolon, which may be a token."""
        return (self.remote or self.master).partition(";")[0]

    @property
    def local(self) -> bool:
        """Do the workers run on this machine, started by this process?"""
        return self.remote is None and self.master.startswith("local")

    @property
    def patience_seconds(self) -> float:
        """See PATIENCE."""
        return float(dict(self.conf).get(PATIENCE, _PATIENCE_SECONDS))

    @property
    def small_rows(self) -> int:
        """See SMALL."""
        return int(dict(self.conf).get(SMALL, _SMALL_ROWS))

    @property
    def properties(self) -> dict[str, str]:
        """The properties in `conf` that are Spark's own."""
        return {name: value for name, value in self.conf if not name.startswith(OWN_PREFIX)}


class Backend(Protocol):
    """One way to a session."""

    def start(self) -> SparkSession:
        """A new session."""
        ...

    def alive(self, session: SparkSession) -> bool:
        """Can the session take another job? A cheap check."""
        ...

    def working(self, session: SparkSession) -> bool:
        """Is there an executor to run its jobs right now?"""
        ...

    def lost(self) -> str:
        """The message for a session that is gone."""
        ...

    def label(self, session: SparkSession, group: str, description: str) -> None:
        """Label this thread's jobs with a name that operators see and that `cancel` takes."""
        ...

    def cancel(self, session: SparkSession, group: str) -> None:
        """End the jobs of a group."""
        ...

    def stop(self, session: SparkSession) -> None:
        """End a session that is alive."""
        ...

    def forget(self, session: SparkSession) -> None:
        """Clean up a session that is gone, so that another can start."""
        ...


def choose(config: SparkConfig) -> Backend:
    """The backend that the settings select."""
    return DriverBackend(config) if config.remote is None else ConnectBackend(config, config.remote)


def parallelism(session: SparkSession) -> int:
    """The number of tasks that run at once, as far as Spark reports it."""
    try:
        return int(session.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # Connect has no context, and says so with an error of its own
        return _CONNECT_PARALLELISM


def counted(relation: DataFrame) -> tuple[DataFrame, Callable[[], int | None]]:
    """The same rows, and a function that returns their number once they have been computed. It returns None if Spark
    does not know: a busy Connect server gives no answer, and Spark does not count rows that it has optimised away."""
    if type(relation).__module__.startswith("pyspark.sql.connect"):
        from pyspark.sql.connect import functions  # noqa: PLC0415  # see the module's text
        from pyspark.sql.connect.observation import Observation  # noqa: PLC0415  # see the module's text
    else:
        from pyspark.sql import Observation, functions  # noqa: PLC0415  # see the module's text

    seen = Observation()
    watched = relation.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    return watched, lambda: seen.get.get("rows")


def adopt() -> str:
    """Use the session that the host of this process has or is about to create, as under `spark-submit` or in a
    notebook. Returns its master."""
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415  # see the module's text

    return str(Session.builder.getOrCreate().sparkContext.master)


def running_here() -> str | None:
    """The master of the session that this process already has, if it has one."""
    pyspark = sys.modules.get("pyspark")
    active = pyspark.SparkContext._active_spark_context if pyspark else None  # noqa: SLF001  # asks without starting one
    return None if active is None else str(active.master)


def make_directory(session: SparkSession, address: str) -> float:
    """Create a directory in any file system that Spark knows. Returns its creation time by that file system's clock, in
    seconds."""
    files, path = _file_system(session, address)
    files.mkdirs(path)
    return float(files.getFileStatus(path).getModificationTime()) / 1000


def directories(session: SparkSession, address: str) -> list[tuple[str, float]]:
    """The names of the directories directly below it, and when each was last changed."""
    files, path = _file_system(session, address)
    found = [status for status in files.listStatus(path) if status.isDirectory()]
    return [(status.getPath().getName(), status.getModificationTime() / 1000) for status in found]


def remove_directory(session: SparkSession, address: str) -> None:
    """Remove a directory with everything in it."""
    files, path = _file_system(session, address)
    files.delete(path, True)


def _file_system(session: SparkSession, address: str) -> tuple[Any, Any]:
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(address)  # noqa: SLF001  # pyspark has no other way
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001  # as above


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
        from pyspark import SparkContext  # noqa: PLC0415  # see the module's text
        from pyspark.sql import SparkSession as Session  # noqa: PLC0415  # see the module's text

        active = SparkContext._active_spark_context  # noqa: SLF001  # the only way to ask without starting one
        if active is not None and active is DriverBackend._ours:
            raise EngineFailed(
                f"this process still runs Spark at {active.master} under the previous settings: "
                f"this table goes to {self._config.master} once that ends"
            )
        both_local = self._config.local and active is not None and active.master.startswith("local")
        if active is not None and not both_local and active.master != self._config.master:
            raise EngineFailed(
                f"this process already runs Spark at {active.master}: tables go to {self._config.master} once it ends"
            )
        self._borrowed = active is not None
        if active is not None:
            return self._beside(Session.builder.getOrCreate())
        self._choose_python()
        builder = Session.builder.master(self._config.master)
        defaults = {**_DEFAULTS, **_DRIVER_DEFAULTS, **(_LOCAL_DEFAULTS if self._config.local else {})}
        for name, value in {**defaults, **self._config.properties, **_ALWAYS}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        DriverBackend._ours = session.sparkContext
        return session

    def _beside(self, host: SparkSession) -> SparkSession:
        """A new session in an existing context; the properties and views of the other session stay as they are."""
        session = host.newSession()
        for name, value in {**_DEFAULTS, **self._config.properties}.items():
            with suppress(Exception):  # the memory, cores and classes of a running context are fixed
                session.conf.set(name, value)
        for name, value in _ALWAYS.items():
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
        """The sentence."""
        if self._config.local:
            return "the JVM that runs Spark has ended"
        return f"no executor of the Spark cluster {self._config.master} is left"

    def label(self, session: SparkSession, group: str, description: str) -> None:
        """A job group, in the pool of this thread: tables at work side by side have threads of their own."""
        session.sparkContext.setJobGroup(group, description)
        if not self._borrowed:
            session.sparkContext.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)

    def cancel(self, session: SparkSession, group: str) -> None:
        """By job group."""
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
        from pyspark import SparkContext  # noqa: PLC0415  # see the module's text
        from pyspark.sql import SparkSession as Session  # noqa: PLC0415  # see the module's text

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

    def _choose_python(self) -> None:
        """pyspark takes the workers' interpreter only from the environment. Values of former settings are removed from
        it."""
        chosen = self._config.properties.get("spark.pyspark.python") or _PYTHON_AT_START
        if chosen is None and self._config.local:
            chosen = sys.executable
        os.environ.pop(_PYTHON, None)
        if chosen is not None:
            os.environ[_PYTHON] = chosen


def _let_end(process: subprocess.Popen[bytes] | None) -> None:
    """A JVM without any connection cleans up after itself and ends."""
    if process is None or process.stdin is None:
        return
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)


class ConnectBackend:
    """The driver is a Spark Connect server elsewhere."""

    def __init__(self, config: SparkConfig, remote: str) -> None:
        self._config = config
        self._remote = remote

    def start(self) -> SparkSession:
        """A new session on the server."""
        try:
            from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415  # see the module's text
            from pyspark.sql.connect.session import SparkSession as Session  # noqa: PLC0415  # see the module's text
        except ImportError as exc:
            raise EngineFailed(f'Spark Connect needs more packages, pip install "lakesweep[connect]": {exc}') from exc
        session = Session.builder.remote(self._remote).create()
        # The default retries for ten minutes; a table that fails is tried again anyway.
        session.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_TRIES)])
        for name, value in {**_DEFAULTS, **self._config.properties, **_ALWAYS}.items():
            session.conf.set(name, value)
        return session

    def alive(self, session: SparkSession) -> bool:
        """Does the server answer, and does it still know the session?"""
        try:
            startup.check_reachable(self._remote)
            session.conf.get("spark.sql.session.timeZone")
        except Exception:  # noqa: BLE001  # whatever it says, it is no answer
            return False
        return True

    def working(self, session: SparkSession) -> bool:  # noqa: ARG002  # the server alone knows its executors
        """Does the server answer?"""
        try:
            startup.check_reachable(self._remote)
        except EngineFailed:
            return False
        return True

    def lost(self) -> str:
        """The sentence."""
        return f"the Spark Connect server {self._remote.partition(';')[0]} is gone"

    def label(self, session: SparkSession, group: str, description: str) -> None:  # noqa: ARG002  # Connect has none
        """Spark Connect uses tags instead of job groups."""
        session.clearTags()
        session.addTag(group)

    def cancel(self, session: SparkSession, group: str) -> None:
        """By tag."""
        session.interruptTag(group)

    def stop(self, session: SparkSession) -> None:
        """Stop the session; the server keeps running."""
        session.stop()

    def forget(self, session: SparkSession) -> None:
        """Close the connection if it is still open."""
        with suppress(Exception):
            session.client.close()
