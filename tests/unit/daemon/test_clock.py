"""A clock that jumps is not believed: against uptime, against what the state store saw, against the database's."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.daemon.clock import CLOCK_SCOPE, ClockWatch, SteadyClock, SystemClock, Uptime, trust_clocks
from lakesweep.state.memory import MemoryStateStore

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ALLOWED = timedelta(minutes=15)
HOUR = timedelta(hours=1)


class TwoClocks:
    """The wall clock and the steady one, each moved by hand."""

    def __init__(self) -> None:
        self.wall, self.steady, self.boot = NOON, 1000.0, "boot-1"

    def now(self) -> datetime:
        return self.wall

    def uptime(self) -> Uptime:
        return Uptime(boot=self.boot, seconds=self.steady)

    def pass_by(self, span: timedelta) -> None:
        self.wall += span
        self.steady += span.total_seconds()


class WithServer(MemoryStateStore):
    """A store whose database has a clock of its own."""

    server: datetime | None = None

    async def server_time(self) -> datetime | None:
        return self.server


@pytest.fixture
def clock() -> TwoClocks:
    return TwoClocks()


@pytest.fixture
def state(clock: TwoClocks) -> WithServer:
    return WithServer(clock)


async def check(clock: TwoClocks, state: WithServer) -> str | None:
    refusal = await ClockWatch(clock, state).check(ALLOWED)
    assert refusal is None or refusal.code == "clock_skew"
    return refusal.reason if refusal else None


async def test_time_that_passes_is_no_jump(clock, state):
    for _ in range(50):
        assert await check(clock, state) is None
        clock.pass_by(timedelta(days=3))


@pytest.mark.parametrize(("days", "said"), [(3, "ahead by 3 days"), (-3, "back by 3 days")])
async def test_a_jump_refuses_until_the_clock_is_right_again(clock, state, days, said):
    jump = timedelta(days=days)
    assert await check(clock, state) is None
    clock.pass_by(HOUR)
    clock.wall += jump
    for _ in range(3):  # also later on, and for every new process: what was remembered stands
        clock.pass_by(HOUR)
        assert said in await check(clock, state)
    clock.wall -= jump
    assert await check(clock, state) is None


async def test_small_steps_that_add_up_are_a_jump(clock, state):
    told = []
    for _ in range(4):
        told.append(await check(clock, state))
        clock.pass_by(HOUR)
        clock.wall += timedelta(minutes=10)
    assert [bool(one) for one in told] == [False, False, True, True]


async def test_a_person_may_say_that_the_new_time_is_right(clock, state):
    await check(clock, state)
    clock.wall += timedelta(days=3)
    assert f"lakesweep resume {CLOCK_SCOPE}" in await check(clock, state)
    await trust_clocks(state)
    assert await check(clock, state) is None
    clock.wall -= timedelta(days=3)
    assert "back by 3 days" in await check(clock, state)


async def test_a_clock_set_back_over_a_reboot_is_behind_what_the_store_saw(clock, state):
    await check(clock, state)
    clock.boot, clock.steady = "boot-2", 5.0
    clock.wall -= HOUR
    assert "behind the last time" in await check(clock, state)
    clock.wall += HOUR
    assert await check(clock, state) is None


async def test_a_clock_far_from_the_database_servers_refuses_either_way(clock, state):
    for jump in (timedelta(days=3), -timedelta(days=3)):
        state.server = NOON + jump
        assert "database server's differ by 3 days" in await check(clock, state)
    state.server = NOON
    assert await check(clock, state) is None


async def test_a_wrong_clock_is_never_remembered(clock, state):
    state.server = NOON
    clock.wall += timedelta(days=3)
    assert await check(clock, state)
    clock.wall -= timedelta(days=3)
    assert await check(clock, state) is None


async def test_the_real_clock_knows_its_boot_and_how_long_it_runs():
    first, second = SystemClock(), SystemClock()
    assert isinstance(first, SteadyClock)
    assert first.uptime().boot == second.uptime().boot
    earlier = first.uptime().seconds
    assert time.monotonic() - 1 <= earlier <= second.uptime().seconds
