"""End the run that takes the most memory before the kernel ends the whole process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from lakesweep.daemon.tending import Turn

log = structlog.get_logger()

SHARE = 0.9
"""Of what the container may take; above it a run is ended."""
_EVERY_SECONDS = 0.5
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def used() -> int:
    """What this process holds in memory, in bytes; 0 where nobody tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def limit() -> int | None:
    """Beyond which the kernel kills the process, where that is set for it."""
    for place in _LIMITS:
        try:
            told = Path(place).read_text().strip()
        except OSError:
            continue
        if told.isdecimal() and int(told) < os.sysconf("SC_PHYS_PAGES") * _PAGE:
            return int(told)
    return None


class MemoryWatch:
    """Looks twice a second. `turns` are the runs under way."""

    def __init__(
        self,
        turns: Callable[[], list[Turn]],
        *,
        used: Callable[[], int] = used,
        limit: int | None = None,
    ) -> None:
        self._turns = turns
        self._used = used
        self._limit = limit
        self._began_with: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled; at once over where there is no limit."""
        while self._limit is not None:
            self.look()
            await asyncio.sleep(_EVERY_SECONDS)

    def look(self) -> Turn | None:
        """End the run since whose beginning memory grew most, if there is too little left. One at a time: what it
        held is free only when it has ended."""
        held, turns = self._used(), self._turns()
        self._began_with = {turn.run_id: self._began_with.get(turn.run_id, held) for turn in turns}
        if self._limit is None or held <= SHARE * self._limit or not turns or any(turn.stop.is_set() for turn in turns):
            return None
        largest = min(turns, key=lambda turn: self._began_with[turn.run_id])
        why = (
            f"the process holds {held >> 20} MiB of the {self._limit >> 20} MiB that it may: give it more, or use Spark"
        )
        log.warning("run_ended_for_memory", table=largest.entry.label, run=largest.run_id, reason=why)
        largest.stop.set()  # no reason of Stopped: it counts as a failure, so the table waits longer each time
        return largest
