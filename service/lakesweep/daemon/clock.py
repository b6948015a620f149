"""The real clock, and the watch over it. Everything else is given it as an argument."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

import structlog

from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Refusal
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore

log = structlog.get_logger()

CLOCK_SCOPE = "@clock"
"""What `lakesweep resume` is given to say that the clock is right as it is now."""
STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Cannot be set, and keeps running while the machine sleeps; systems without it have no such clock."""
_LEAST = timedelta(minutes=1)
"""Allowed whatever the settings say: questions take time, and leap seconds happen."""
_NOTED_EVERY = timedelta(minutes=1)
_SEEN, _EPOCH = "clock:seen", "clock:epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uptime:
    """Time that nobody can set: seconds since a boot, with the id of that boot."""

    boot: str
    seconds: float


@runtime_checkable
class SteadyClock(Protocol):
    """A clock with a second one inside that never jumps."""

    def uptime(self) -> Uptime: ...


class SystemClock:
    """The time of this machine."""

    def __init__(self) -> None:
        self._boot = _boot()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def uptime(self) -> Uptime:
        return Uptime(boot=self._boot, seconds=time.clock_gettime(STEADY))


def _boot() -> str:
    """Names what the steady clock counts from: the boot, and the container's own clock if it has one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"process {os.getpid()} since {time.clock_gettime(STEADY):.0f}"  # then only this process is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anchor:
    """A moment by both clocks of a machine, the first that was seen since its boot."""

    epoch: int
    wall: float
    uptime: float


class ClockWatch:
    """Can the wall clock still be trusted? It is compared with the machine's own uptime since the first look after its
    boot, with the last time that the state store has seen, and with the database server's clock.

    Everything depends on ages, and on local disks they are judged by the same clock that set them: one that jumps ahead
    by three days makes a minute-old file three days old. Only times that passed are remembered.
    """

    def __init__(self, clock: Clock, state: StateStore) -> None:
        self._clock = clock
        self._state = state

    async def check(self, allowed: timedelta) -> Refusal | None:
        """Refused with `clock_skew` while it cannot. A clock that cannot be compared with anything is trusted."""
        if not isinstance(self._clock, SteadyClock):
            return None
        allowed = max(allowed, _LEAST)
        now, uptime = self._clock.now(), self._clock.uptime()
        server = await self._state.server_time()
        if server is not None and (apart := abs(server - now)) > allowed:
            return _refusal(f"this machine's clock and the database server's differ by {_span(apart)}")
        epoch = int(await self._state.recall(_EPOCH) or 0)
        anchor = await self._anchor(uptime.boot, epoch)
        if anchor is not None:
            jumped = timedelta(seconds=(now.timestamp() - anchor.wall) - (uptime.seconds - anchor.uptime))
            if abs(jumped) > allowed:
                way = "ahead" if jumped > timedelta(0) else "back"
                since = datetime.fromtimestamp(anchor.wall, UTC)
                return _refusal(
                    f"this machine's clock was set {way} by {_span(abs(jumped))} since {since:%Y-%m-%d %H:%M}"
                )
        seen = await self._seen(epoch)
        if seen is not None and seen - now > allowed:
            return _refusal(
                f"this machine's clock is {_span(seen - now)} behind the last time recorded in the state store"
            )
        await self._note(now, uptime, epoch, anchor, seen)
        return None

    async def _note(
        self, now: datetime, uptime: Uptime, epoch: int, anchor: _Anchor | None, seen: datetime | None
    ) -> None:
        if anchor is None:
            anchor = _Anchor(epoch=epoch, wall=now.timestamp(), uptime=uptime.seconds)
            await self._state.remember(f"clock:{uptime.boot}", json.dumps(asdict(anchor)))
        if seen is None or now - seen > _NOTED_EVERY:
            await self._state.remember(_SEEN, json.dumps({"epoch": epoch, "at": now.isoformat()}))

    async def _anchor(self, boot: str, epoch: int) -> _Anchor | None:
        noted = await self._state.recall(f"clock:{boot}")
        anchor = _Anchor(**json.loads(noted)) if noted else None
        return anchor if anchor and anchor.epoch == epoch else None

    async def _seen(self, epoch: int) -> datetime | None:
        noted = json.loads(await self._state.recall(_SEEN) or "{}")
        return datetime.fromisoformat(noted["at"]) if noted.get("epoch") == epoch else None


async def trust_clocks(state: StateStore) -> None:
    """A person says that the clocks are right: everything remembered about them is forgotten."""
    epoch = int(await state.recall(_EPOCH) or 0) + 1
    await state.remember(_EPOCH, str(epoch))
    log.info("clock_believed", epoch=epoch)


def _refusal(what: str) -> Refusal:
    return Refusal(
        code=RefusalCode.CLOCK_SKEW,
        reason=f"{what}, more than max_clock_skew_minutes allows, so file ages cannot be trusted: correct the "
        f"clock; if it is correct now, run `lakesweep resume {CLOCK_SCOPE}`",
    )


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
