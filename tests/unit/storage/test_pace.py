"""The pace of deletes: shrinks fast, grows slowly, never leaves its bounds."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from lakesweep.storage.pace import Gate, Pace


def test_throttling_halves_both_at_once():
    pace = Pace(page_size=1000, concurrency=8)
    pace.throttled()
    assert (pace.page_size, pace.concurrency) == (500, 4)


def test_calm_brings_one_step_at_a_time():
    pace = Pace(page_size=1000, concurrency=8)
    pace.throttled()
    steps = []
    for _ in range(10):
        pace.succeeded()
        steps.append((pace.page_size, pace.concurrency))
    assert steps == [(500, 4)] * 4 + [(600, 5)] * 5 + [(700, 6)]


@given(st.integers(1, 1000), st.integers(1, 64), st.lists(st.booleans(), max_size=200))
def test_the_pace_stays_within_its_bounds(page_size, concurrency, calm):
    pace = Pace(page_size=page_size, concurrency=concurrency)
    for good in calm:
        pace.succeeded() if good else pace.throttled()
        assert 1 <= pace.page_size <= page_size
        assert 1 <= pace.concurrency <= concurrency


async def test_the_gate_follows_the_pace():
    pace = Pace(page_size=10, concurrency=4)
    gate = Gate(pace)
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
    pace.throttled()
    pace.throttled()
    await asyncio.gather(*(visit() for _ in range(40)))
    assert max(most) == 1
