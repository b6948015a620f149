"""Whether the service is healthy. Checks every time it is called; reveals no name of a tenant or table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakesweep.admin.backend import Health
from lakesweep.model.errors import StateError
from lakesweep.telemetry import activity

if TYPE_CHECKING:
    from lakesweep.daemon.service import Service

STUCK_SECONDS = 120.0
"""A scheduler that has not run for this long hangs: its longest wait is for the state store."""
STALLED_SECONDS = 3600.0
"""Longer than any single step of a run takes: each call to a store has its own deadline."""
ANSWER_SECONDS = 5.0
OK = "ok"


@dataclass(frozen=True)
class Checkup:
    """Looks at one service."""

    service: Service

    async def alive(self) -> Health:
        """Should this process be left running? A state store that is away is no reason to restart it."""
        needed = {"scheduler": self._scheduler(), "progress": self._progress()}
        return _health(needed, {"last_cycle": self._last_cycle()})

    async def ready(self) -> Health:
        stopping = "the service is shutting down" if self.service.shutdown.requested.is_set() else OK
        needed = {"state": await self._state(), "scheduler": self._scheduler(), "stopping": stopping}
        invalid = self.service.reloader.problem is not None
        settings = "the new settings are invalid; still using the previous ones" if invalid else OK
        differs = self.service.replicas.differs
        others = f"replica {differs} runs with other settings" if differs else OK
        return _health(needed, {"settings": settings, "replicas": others, "last_cycle": self._last_cycle()})

    async def _state(self) -> str:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.service.app.state.ping()
        except TimeoutError:
            return f"the state store did not answer within {ANSWER_SECONDS:g} s"
        except StateError:
            return "the state store cannot be used"
        return OK

    def _scheduler(self) -> str:
        if self.service.scheduler.last_beat is None:
            return "the scheduler has not started"
        age = asyncio.get_running_loop().time() - self.service.scheduler.last_beat
        return OK if age < STUCK_SECONDS else f"the scheduler has been idle for {age:.0f} s"

    def _progress(self) -> str:
        """Every place is taken and nothing has answered for an hour: only a restart helps."""
        full = len(self.service.scheduler.running) >= self.service.app.settings.daemon.max_tables
        idle = activity.seconds_since()
        return f"no table has made progress for {idle:.0f} s" if full and idle > STALLED_SECONDS else OK

    def _last_cycle(self) -> str:
        finished = self.service.scheduler.last_finished
        if finished is None:
            return "none yet"
        return f"ended {max(0.0, (self.service.app.clock.now() - finished).total_seconds()):.0f} s ago"


def _health(needed: dict[str, str], optional: dict[str, str]) -> Health:
    return Health(well=all(answer == OK for answer in needed.values()), checks=needed | optional)
