"""The request limits of deletes: they shrink fast, grow slowly, never leave their bounds."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st

from lakesweep.storage.adaptive_limiter import Gate, RequestLimits


def test_throttling_halves_both_at_once():
    limits = RequestLimits(page_size=1000, concurrency=8)
    limits.throttled()
    assert (limits.page_size, limits.concurrency) == (500, 4)


def test_calm_brings_one_step_at_a_time():
    limits = RequestLimits(page_size=1000, concurrency=8)
    limits.throttled()
    steps = []
    for _ in range(10):
        limits.succeeded()
        steps.append((limits.page_size, limits.concurrency))
    assert steps == [(500, 4)] * 4 + [(600, 5)] * 5 + [(700, 6)]


@given(st.integers(1, 1000), st.integers(1, 64), st.lists(st.booleans(), max_size=200))
def test_the_pace_stays_within_its_bounds(page_size, concurrency, record_success):
    limits = RequestLimits(page_size=page_size, concurrency=concurrency)
    for good in record_success:
        limits.succeeded() if good else limits.throttled()
        assert 1 <= limits.page_size <= page_size
        assert 1 <= limits.concurrency <= concurrency


async def test_the_gate_follows_the_limits():
    limits = RequestLimits(page_size=10, concurrency=4)
    gate = Gate(limits)
    inside, most = 0, []

    async def visit() -> None:
        nonlocal inside
        async with gate.enter():
            inside += 1
            most.append(inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(visit() for _ in range(40)))
    assert max(most) == 4
    most.clear()
    limits.throttled()
    limits.throttled()
    await asyncio.gather(*(visit() for _ in range(40)))
    assert max(most) == 1


async def test_requests_throttled_together_slow_down_once():
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        await asyncio.sleep(0)

    gate = Gate(RequestLimits(page_size=1000, concurrency=8), sleep)
    async with AsyncExitStack() as held:
        together = [await held.enter_async_context(gate.enter()) for _ in range(6)]
    await asyncio.gather(*map(gate.throttled, together))
    assert (gate.limits.page_size, gate.limits.concurrency) == (500, 3)  # half of the six that were too much
    assert len(pauses) == 1
    async with gate.enter() as after:
        pass
    await gate.throttled(after)
    assert (gate.limits.page_size, gate.limits.concurrency, len(pauses)) == (250, 1, 2)
    for began in together:
        gate.record_success(began)  # late news from before: not yet a reason to grow
    assert (gate.limits.page_size, gate.limits.concurrency) == (250, 1)


async def test_nobody_enters_while_a_throttled_store_is_left_alone():
    resting, over = asyncio.Event(), asyncio.Event()

    async def sleep(_seconds):
        resting.set()
        await over.wait()

    gate = Gate(RequestLimits(page_size=10, concurrency=4), sleep)
    async with gate.enter() as began:
        pass
    told = asyncio.create_task(gate.throttled(began))
    await resting.wait()
    entered = asyncio.create_task(gate.enter().__aenter__())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not entered.done()
    over.set()
    assert await entered == 1
    await told


async def test_a_pause_that_is_cancelled_leaves_the_gate_open():
    gate = Gate(RequestLimits(page_size=10, concurrency=4), lambda _seconds: asyncio.Event().wait())
    async with gate.enter() as began:
        pass
    told = asyncio.create_task(gate.throttled(began))
    await asyncio.sleep(0)
    told.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await told
    async with asyncio.timeout(10), gate.enter() as again:
        assert again == 1
