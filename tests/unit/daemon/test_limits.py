"""Places that all tables share, of which one tenant never has all."""

import asyncio

import pytest

from lakesweep.daemon.limits import Slots, share


@pytest.mark.parametrize(("places", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (16, 12), (100, 75)])
def test_one_tenant_gets_about_three_quarters_and_never_the_last(places, most):
    assert share(places) == most


async def test_a_tenant_that_keeps_its_places_leaves_one_for_others():
    places = Slots(4)
    for _ in range(3):
        await places.of("acme").acquire()
    assert places.of("acme").locked()
    waiting = asyncio.create_task(places.of("acme").acquire())
    await asyncio.wait_for(places.of("globex").acquire(), 5)
    assert not waiting.done()
    places.of("acme").release()
    places.of("globex").release()
    await asyncio.wait_for(waiting, 5)


async def test_whoever_gives_up_waiting_leaves_no_place_taken():
    places = Slots(2)
    await places.of("acme").acquire()
    async with places.of("globex"):
        waiting = asyncio.create_task(places.of("third").acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await asyncio.wait_for(places.of("third").acquire(), 5)
