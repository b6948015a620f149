"""One table's run in the Spark session: its label, its steps, their times, and what they leave for each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lakesweep.engines.spark.known_sources import KnownSources
from lakesweep.engines.spark.session import JobLabel, SparkRuntime
from lakesweep.engines.spark.steps import Steps
from lakesweep.ports.engine import OrphanJob
from lakesweep.ports.references import ReferenceSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class SessionRun:
    """One table's run in the session: its label, its steps and their times."""

    pipeline: Steps
    stack: AsyncExitStack
    """Closed when the run ends."""
    sources: Sequence[ReferenceSource] = ()
    """By their numbers in the rows of references."""
    known: KnownSources | None = None
    """What the cache knows of them."""

    def __init__(self, *, runtime: SparkRuntime, session: SparkSession, job: OrphanJob) -> None:
        self.session = session
        self.laps: dict[str, float] = {}
        self._runtime = runtime
        self._table = job.ref.label
        self._report_step = job.report_step
        self._id = Path(job.rows_path).stem
        self._last = time.perf_counter()

    async def step(self, phase: str, work: Callable[[SparkSession], T]) -> T:
        """Run some work on Spark under this run's name."""
        self._report_step(phase)
        label = JobLabel(group=f"lakesweep-{self._id}", description=f"{self._table}: {phase} (run {self._id})")
        done = await self._runtime.run(self.session, label, work)
        self.lap(phase.replace(" ", "_"))
        return done

    def lap(self, phase: str) -> None:
        """Add the time since the last lap to a phase."""
        now = time.perf_counter()
        self.laps[phase] = round(self.laps.get(phase, 0.0) + now - self._last, 3)
        self._last = now
