"""The laws of a cycle, over random histories of every format, with faults and other writers at any call."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hypothesis import given, note
from hypothesis import strategies as st
from tests.builders.faults import Faults, Killed
from tests.laws.every_format import every_format, fresh, laws
from tests.laws.worlds import Kind

from lakesweep.model.errors import LakesweepError
from lakesweep.model.run import CleanupRun, Outcome

LAWS = laws(15, soak=500)


def assert_done(run: CleanupRun) -> None:
    assert run.outcome is Outcome.DONE, run.reason


@every_format
@LAWS
@given(data=st.data())
async def test_a_cycle_loses_nothing_live_and_leaves_nothing_dead(home: Path, kind: Kind, data) -> None:
    with closing(kind.build(fresh(home), data.draw(kind.histories()))) as world:
        assert_done(await world.cycle())
        world.check()
        world.check_nothing_dead_is_left()
        again = await world.cycle()
        assert_done(again)
        assert again.expired_snapshots == ()
        assert again.plan.candidates.files == 0


@every_format
@LAWS
@given(data=st.data(), where=st.floats(0, 1), kill=st.booleans(), after=st.booleans())
async def test_a_fault_at_any_call_loses_nothing_and_the_next_cycle_completes(
    home: Path, kind: Kind, data, where: float, kill: bool, after: bool
) -> None:
    with closing(kind.build(fresh(home), data.draw(kind.histories()))) as world:
        counting = Faults()
        await world.cycle(counting)
        expected = world.files()
        world.rewind()

        store = world.new_store()
        at = int(where * (len(counting.calls) - 1))
        note(f"fault at {at} of {len(counting.calls)}: {counting.calls[at]}")
        try:
            run = await world.cycle(Faults(at=at, kill=kill, after=after), store)
            note(f"{run.outcome} {run.reason}")
        except* (Killed, LakesweepError):
            note("gone")
        world.check()

        assert_done(await world.cycle(store=store))
        world.check()
        await world.check_recovered(expected)


@every_format
@LAWS
@given(data=st.data(), moments=st.lists(st.floats(0, 1), min_size=1, max_size=4))
async def test_other_writers_at_any_moment_of_a_cycle_are_never_harmed(
    home: Path, kind: Kind, data, moments: list[float]
) -> None:
    with closing(kind.build(fresh(home), data.draw(kind.histories()))) as world:
        counting = Faults()
        await world.cycle(counting)
        world.rewind()
        waiting = sorted(int(where * (len(counting.calls) - 1)) for where in moments)
        steps = [data.draw(kind.steps()) for _ in waiting]

        def act(call: int) -> None:
            while waiting and waiting[0] <= call:
                waiting.pop(0)
                step = steps.pop(0)
                note(f"{step} before call {call}")
                world.act(step)

        run = await world.cycle(Faults(before=act))
        note(f"{run.outcome} {run.reason}")
        world.check()
        assert_done(await world.cycle())
        world.check()
