"""Too much memory ends the run that took it, with a reason that says so, and not the process."""

import asyncio
from types import SimpleNamespace

import pytest

from lakesweep.aio import StopRequest, cancel_on, interruption
from lakesweep.daemon import memory
from lakesweep.daemon.memory import MemoryWatch
from lakesweep.formats import bounds, inflate
from lakesweep.model.errors import Interrupted
from lakesweep.settings.schema import Settings
from lakesweep.settings.values import in_bytes

MIB = 1 << 20


class Watched:
    """A watch of which a test says how much memory there is."""

    def __init__(self, *, container=None, memory_limit="100MiB", listings=2):
        self.held = 100 * MIB
        settings = Settings.model_validate(
            {"engine": {"memory_limit": memory_limit}, "daemon": {"max_listings": listings}}
        )
        self.watch = MemoryWatch(settings, used=lambda: self.held, container=lambda: container)
        self.now = 0.0

    def begin(self, name):
        stop = StopRequest()
        return SimpleNamespace(run=self.watch._begin(name, f"run of {name}", stop), stop=stop)

    def end(self, one):
        self.watch._runs.remove(one.run)

    def grow(self, mib):
        self.held += mib * MIB
        self.now += 0.2
        return self.watch.look(self.now)


def test_a_run_alone_that_takes_more_than_its_limit_is_ended_with_the_reason():
    watched = Watched()
    one = watched.begin("one")
    assert watched.grow(399) is None
    assert watched.grow(2) == "one"
    assert one.stop.is_set()
    for word in ("memory", "401 MiB", "400 MiB", "engine.memory_limit = 100MiB"):
        assert word in one.stop.why


def test_what_was_there_before_a_run_is_not_held_against_it():
    watched = Watched()
    watched.held = 5000 * MIB
    watched.begin("one")
    assert watched.grow(300) is None


def test_what_is_given_back_is_not_held_against_it_any_more():
    watched = Watched()
    watched.begin("one")
    for change in (390, -380, 380, -380, 380):
        assert watched.grow(change) is None


def test_of_several_runs_the_one_that_saw_most_growth_is_ended_one_at_a_time():
    watched = Watched()
    first = watched.begin("first")
    assert watched.grow(300) is None
    second = watched.begin("second")
    assert watched.grow(400) is None  # two may take twice as much
    assert watched.grow(200) == "first"
    assert watched.grow(100) is None  # until it has ended
    assert not second.stop.is_set()
    watched.end(first)
    assert watched.grow(400) == "second"


def test_no_more_runs_count_than_may_list_at_a_time():
    watched = Watched(listings=1)
    for name in "abc":
        watched.begin(name)
    assert watched.grow(401) in "abc"


def test_a_run_that_was_ended_and_does_not_leave_shields_nobody_for_ever():
    watched = Watched()
    watched.begin("hangs")
    assert watched.grow(401) == "hangs"
    watched.begin("other")
    assert watched.grow(500) is None
    watched.now += 60
    assert watched.grow(0) == "other"


def test_nine_tenths_of_the_container_end_a_run_that_is_within_its_limit():
    watched = Watched(container=400 * MIB)
    one = watched.begin("one")
    assert watched.grow(250) is None
    assert watched.grow(20) == "one"
    assert "container" in one.stop.why


def test_without_work_nothing_is_ended():
    assert Watched(container=1).grow(1000) is None


def test_new_settings_hold_for_runs_under_way():
    watched = Watched()
    watched.begin("one")
    watched.watch.adopt(Settings.model_validate({"engine": {"memory_limit": "1GiB"}}))
    assert watched.grow(2000) is None


async def test_a_run_ends_with_the_reason_and_the_watch_with_the_last_run():
    held = iter([0, *[1 << 40] * 1000])
    watch = MemoryWatch(Settings(), used=lambda: next(held), container=lambda: None)
    stop = StopRequest()
    with pytest.raises(Interrupted, match=r"engine\.memory_limit = 512MB"):
        async with watch.watching("a table", "a run", stop):
            await cancel_on(stop, asyncio.sleep(3600), "work")
    assert watch._looking is None


async def test_a_run_that_somebody_stopped_says_that():
    for stop in (StopRequest(), asyncio.Event()):
        stop.set()
        assert "the next cycle continues" in str(interruption(stop))


def test_json_that_takes_more_than_a_run_may_is_refused_before_it_is_read():
    text = b"[" + b"{}," * 400_000 + b"{}]"
    bounds.allow(bounds.most(), memory=50 * MIB)
    try:
        with pytest.raises(ValueError, match=r"engine\.memory_limit"):
            inflate.parse_json(text)
    finally:
        bounds.allow(bounds.most())
    assert len(inflate.parse_json(text)) == 400_001


def test_sizes_are_read_with_their_units():
    assert [in_bytes(size) for size in ("512MB", "4GiB", "1.5 KB")] == [512 * 10**6, 4 << 30, 1500]


def test_what_the_system_reports_is_plausible():
    assert memory.used() > MIB
    told = memory.limit()
    assert told is None or told > MIB
    memory.give_back()
