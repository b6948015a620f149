"""A lease is held by its heartbeat; the moment it is lost, the work under it is cancelled."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.daemon.lease import lease
from lakesweep.model.errors import LeaseLost, Refused, StateError
from lakesweep.state.memory import MemoryStateStore

TTL = timedelta(seconds=0.3)
TABLE = "acme/shop/orders"


class SystemClock:
    def now(self):
        return datetime.now(UTC)


@pytest.fixture
def state():
    return MemoryStateStore(SystemClock())


async def test_the_heartbeat_keeps_a_lease_far_beyond_its_time(state):
    async with lease(state, TABLE, "me", TTL) as held, held.guarding():
        await asyncio.sleep(1)
        await held.check()
        assert await state.acquire_lease(TABLE, "you", TTL) is None


async def test_a_machine_that_slept_beyond_its_lease_sends_nothing(state, monkeypatch):
    """The event loop's clock stands still in a sleeping machine, and so does everything that waits by it."""
    slept = 0.0
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + slept)
    async with lease(state, TABLE, "me", timedelta(minutes=1)) as held:
        held.check_time()
        slept = 61.0
        with pytest.raises(LeaseLost, match="was suspended"):
            held.check_time()
        with pytest.raises(LeaseLost):  # and what is lost stays lost
            await held.check()


async def test_a_busy_table_is_refused_and_free_again_afterwards(state):
    async with lease(state, TABLE, "me", TTL):
        with pytest.raises(Refused, match="busy"):
            async with lease(state, TABLE, "you", TTL):
                pass
    async with lease(state, TABLE, "you", TTL) as held:
        await held.check()


async def test_work_under_a_lease_that_somebody_took_is_cancelled(state):
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def robbed():
        async with lease(state, TABLE, "me", TTL) as held, held.guarding():
            newest = await state.acquire_lease(TABLE, "me", TTL)  # the same owner again: the older token is void
            assert newest.token == held.token + 1
            await work()

    with pytest.raises(LeaseLost, match="void"):
        await robbed()
    assert ended == ["cancelled"]


async def test_work_is_cancelled_when_the_store_is_away_beyond_the_lease(state):
    async def away(*_):
        raise StateError("the state store is away")

    async def left_alone():
        async with lease(state, TABLE, "me", TTL) as held, held.guarding():
            state.renew_lease = away
            await asyncio.sleep(60)

    with pytest.raises(LeaseLost, match="renewed in time"):
        await left_alone()


async def test_a_store_that_comes_back_in_time_costs_nothing(state):
    renew, failures = state.renew_lease, iter([True])

    async def once_away(*arguments):
        if next(failures, False):
            raise StateError("the state store is away")
        return await renew(*arguments)

    state.renew_lease = once_away
    async with lease(state, TABLE, "me", TTL) as held, held.guarding():
        await asyncio.sleep(0.8)
        await held.check()


async def test_a_timeout_of_the_work_itself_is_not_taken_for_a_lost_lease(state):
    with pytest.raises(TimeoutError):
        async with lease(state, TABLE, "me", timedelta(seconds=60)) as held, held.guarding():
            raise TimeoutError


async def test_a_cancellation_from_outside_stays_one_and_gives_the_lease_back(state):
    async def work():
        async with lease(state, TABLE, "me", timedelta(seconds=60)) as held, held.guarding():
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await state.acquire_lease(TABLE, "you", TTL) is not None
