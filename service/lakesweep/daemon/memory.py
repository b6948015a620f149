"""End the run that takes too much memory, before the kernel ends the whole process.

Memory belongs to the process, so its growth is divided among the running runs: one alone gets all of it, several get
equal parts while they run at the same time. Two bounds hold: four times engine.memory_limit for every run that may list
at a time, and nine tenths of what the container may take.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import structlog

from lakesweep.aio import StopRequest
from lakesweep.formats import columnar
from lakesweep.settings.schema import Settings
from lakesweep.settings.values import in_bytes

log = structlog.get_logger()

SHARE = 0.9
"""Of what the container may take; above it a run is ended."""
_TIMES = 4
"""A run may take this many times engine.memory_limit, which is for its join alone."""
_AT_LEAST = 256 * 1024 * 1024
"""What any run may take: the first one of a process pays for libraries and allocators too."""
_EVERY_SECONDS = 0.2
_PATIENCE_SECONDS = 30.0
"""How long a run that was ended may take to give its memory back, before another one is ended."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def used() -> int:
    """What this process and the ones that decode for it hold in memory, in bytes; 0 where that is unknown."""
    try:
        own = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
    return own + columnar.resident()


def limit() -> int | None:
    """Beyond which the kernel kills the process, where that is set for it."""
    for place in _LIMITS:
        try:
            limit = Path(place).read_text().strip()
        except OSError:
            continue
        if limit.isdecimal() and int(limit) < os.sysconf("SC_PHYS_PAGES") * _PAGE:
            return int(limit)
    return None


def of_a_run(settings: Settings) -> int:
    return max(_AT_LEAST, _TIMES * in_bytes(settings.engine.memory_limit))


@dataclass(kw_only=True, eq=False)
class _Run:
    label: str
    run_id: str
    stop: asyncio.Event
    taken: float = 0.0
    """Its part of what the process has grown by since it began."""
    ended_at: float | None = None


class MemoryWatch:
    """Looks five times a second while there are runs."""

    def __init__(
        self, settings: Settings, *, used: Callable[[], int] = used, container: Callable[[], int | None] = limit
    ) -> None:
        self._used = used
        self._container = container()
        self._runs: list[_Run] = []
        self._held = 0
        self._looking: asyncio.Task[None] | None = None
        self.adopt(settings)

    def adopt(self, settings: Settings) -> None:
        """New settings, which hold for runs under way too."""
        self._setting = settings.engine.memory_limit
        self._of_a_run = of_a_run(settings)
        self._at_once = settings.daemon.max_listings

    @asynccontextmanager
    async def watching(self, label: str, run_id: str, stop: asyncio.Event) -> AsyncIterator[None]:
        """Watch what a run takes while it is inside; `stop` is set when that is too much."""
        run = self._begin(label, run_id, stop)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on(), name="memory", context=Context())
        try:
            yield
        finally:
            self._runs.remove(run)
            if not self._runs and self._looking is not None:
                self._looking.cancel()
                self._looking = None
            if run.ended_at is not None:
                give_back()

    async def _look_on(self) -> None:
        while True:
            self.look(asyncio.get_running_loop().time())
            await asyncio.sleep(_EVERY_SECONDS)

    def _begin(self, label: str, run_id: str, stop: asyncio.Event) -> _Run:
        self._share_out()
        run = _Run(label=label, run_id=run_id, stop=stop)
        self._runs.append(run)
        return run

    def look(self, now: float) -> str | None:
        """End the run that has taken most, if that is too much. Returns its label. One at a time: what it held is free
        only when it has ended."""
        self._share_out()
        left = [run for run in self._runs if not run.stop.is_set()]
        if not left or any(run.ended_at is not None and now - run.ended_at < _PATIENCE_SECONDS for run in self._runs):
            return None
        largest = max(left, key=lambda run: run.taken)
        why = self._why(largest)
        if why is None:
            return None
        log.warning("run_ended_for_memory", table=largest.label, run=largest.run_id, reason=why)
        largest.ended_at = now
        # Not one of `Stopped`: it counts as a failure, so the table waits longer each time.
        largest.stop.end(why) if isinstance(largest.stop, StopRequest) else largest.stop.set()
        return largest.label

    def _why(self, largest: _Run) -> str | None:
        taken = f"out of memory: the run has taken about {int(largest.taken) >> 20} MiB"
        if self._container is not None and self._held > SHARE * self._container:
            return (
                f"{taken}, and the process uses {self._held >> 20} MiB of the {self._container >> 20} MiB of its "
                "container: give it more memory, lower engine.memory_limit or daemon.max_listings, or use Spark"
            )
        allowed = self._of_a_run * min(len(self._runs), self._at_once)
        if sum(run.taken for run in self._runs) <= allowed:
            return None
        return (
            f"{taken}, and runs may take {allowed >> 20} MiB by engine.memory_limit = {self._setting}: raise it if the "
            "process has more, or use Spark"
        )

    def _share_out(self) -> None:
        """What the process has grown by since the last look goes to all in equal parts; what it has given back is taken
        from each by what it has."""
        before, self._held = self._held, self._used()
        change = self._held - before
        taken = sum(run.taken for run in self._runs)
        for run in self._runs:
            if change > 0:
                run.taken += change / len(self._runs)
            elif taken:
                run.taken = max(0.0, run.taken + change * run.taken / taken)


def give_back() -> None:
    """What a run has left behind in allocators would be counted for the next one."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc only
