"""The two ways to a Spark session: a driver in this process (`master`) and a Spark Connect server (`remote`); and what
both are asked in the same way.

Blocking. pyspark is heavy, so it is imported when it is first needed: a service that never uses Spark pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lakesweep.engines.spark.config import SparkConfig
from lakesweep.engines.spark.connect import ConnectBackend
from lakesweep.engines.spark.driver import DriverBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECT_PARALLELISM = 32
"""Spark Connect does not say how many cores there are."""


class Backend(Protocol):
    """One way to a session."""

    def start(self) -> SparkSession:
        """A new session."""

    def alive(self, session: SparkSession) -> bool:
        """Can the session take another job? A cheap check."""

    def working(self, session: SparkSession) -> bool:
        """Is there an executor to run its jobs right now?"""

    def lost(self) -> str:
        """The message for a session that is gone."""

    def label(self, session: SparkSession, group: str, description: str) -> None:
        """Label this thread's jobs with a name that operators see and that `cancel` takes."""

    def cancel(self, session: SparkSession, group: str) -> None:
        """End the jobs of a group."""

    def stop(self, session: SparkSession) -> None:
        """End a session that is alive."""

    def forget(self, session: SparkSession) -> None:
        """Clean up a session that is gone, so that another can start."""


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
        from pyspark.sql.connect import functions  # noqa: PLC0415  # heavy
        from pyspark.sql.connect.observation import Observation  # noqa: PLC0415  # heavy
    else:
        from pyspark.sql import Observation, functions  # noqa: PLC0415  # heavy

    seen = Observation()
    watched = relation.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    return watched, lambda: seen.get.get("rows")
