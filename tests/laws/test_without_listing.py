"""Laws of cycles that do not list: of any history exactly what a full plan calls expired goes, and nothing else."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path

from hypothesis import given, note
from hypothesis import strategies as st
from tests.builders.cycles import rows
from tests.builders.faults import Faults, Killed
from tests.laws.every_format import every_format, fresh, laws, trashing
from tests.laws.worlds import Kind, delta

from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import Reason
from lakesweep.model.run import ListingMode, Outcome

LAWS = laws(6, soak=300)


@every_format
@LAWS
@given(data=st.data(), trash=st.booleans())
async def test_without_a_listing_goes_exactly_what_expires(home: Path, kind: Kind, data, trash: bool) -> None:
    """Delta expires by removing files from the log: those go too, as in its own lite vacuum."""
    how = trashing() if trash else nullcontext()
    with how, closing(kind.build(fresh(home), data.draw(kind.histories()))) as world:
        store = world.new_store()
        full = await world.plan(store)
        assert full.outcome is Outcome.DRY_RUN, full.reason
        expired, other = rows(full, Reason.EXPIRED), rows(full, Reason.UNREFERENCED)
        world.listing = ListingMode.NEVER
        plan = await world.plan(store)
        assert (plan.outcome, plan.plan.listed, plan.listed_because) == (Outcome.DRY_RUN, False, None), plan.reason
        assert rows(plan, Reason.EXPIRED) == expired
        found = rows(plan, Reason.UNREFERENCED)
        assert found.items() <= other.items() if kind is delta else not found
        before = world.files()
        run = await world.cycle(store=store)
        assert run.outcome is Outcome.DONE, run.reason
        assert run.unchanged or not run.plan.listed
        assert bool(before - world.files()) <= bool({**expired, **found})
        world.check()
        world.listing = ListingMode.ALWAYS
        after = await world.plan(store)
        assert not rows(after, Reason.EXPIRED)
        assert (await world.cycle(store=store)).outcome is Outcome.DONE
        world.check()
        world.check_nothing_dead_is_left()


@every_format
@LAWS
@given(data=st.data(), moment=st.floats(0, 1), what=st.sampled_from(["writer", "fault", "kill"]))
async def test_whatever_comes_between_two_calls_nothing_live_is_lost(
    home: Path, kind: Kind, data, moment: float, what: str
) -> None:
    with closing(kind.build(fresh(home), data.draw(kind.histories()))) as world:
        store, counting = world.new_store(), Faults()
        await world.plan(store)
        world.listing = ListingMode.NEVER
        await world.cycle(counting, store)
        world.rewind()
        store = world.new_store()
        world.listing = ListingMode.ALWAYS
        await world.plan(store)
        world.listing = ListingMode.NEVER
        at = int(moment * (len(counting.calls) - 1))
        waiting = [data.draw(kind.steps())] if what == "writer" else []

        def act(call: int) -> None:
            if waiting and call >= at:
                world.act(waiting.pop())

        try:
            broken = Faults(before=act) if what == "writer" else Faults(at=at, kill=what == "kill")
            run = await world.cycle(broken, store)
            note(f"{what} at {at} of {len(counting.calls)}: {run.outcome} {run.reason}")
        except* (Killed, LakesweepError):
            note("gone")
        world.check()
        again = await world.cycle(store=store)
        note(f"{again.outcome} {again.reason} {again.listed_because}")
        world.check()
        world.listing = ListingMode.ALWAYS
        assert (await world.cycle(store=store)).outcome is Outcome.DONE
        world.check()
