"""Too little memory ends one run, and not the process."""

import asyncio
from types import SimpleNamespace

from lakesweep.daemon import memory
from lakesweep.daemon.memory import MemoryWatch

LIMIT = 1000 << 20


def turn(name):
    return SimpleNamespace(run_id=name, stop=asyncio.Event(), entry=SimpleNamespace(label=name))


def watched(*turns):
    state = SimpleNamespace(turns=list(turns), held=100 << 20)
    return state, MemoryWatch(lambda: state.turns, used=lambda: state.held, limit=LIMIT)


def test_the_run_under_which_memory_grew_most_is_ended_and_no_other():
    first, second = turn("first"), turn("second")
    state, watch = watched(first)
    assert watch.look() is None
    state.held, state.turns = 600 << 20, [first, second]
    assert watch.look() is None
    state.held = 901 << 20
    assert watch.look() is first
    assert watch.look() is None  # until it has ended
    state.turns = [second]
    assert watch.look() is second


def test_without_a_limit_or_work_nothing_is_ended():
    one = turn("one")
    assert MemoryWatch(lambda: [one], used=lambda: LIMIT, limit=None).look() is None
    assert MemoryWatch(list, used=lambda: LIMIT, limit=LIMIT).look() is None
    assert not one.stop.is_set()


def test_what_the_system_tells_is_plausible():
    assert memory.used() > 1 << 20
    told = memory.limit()
    assert told is None or told > 1 << 20
