"""Work side by side: results in order, few at a time, and the first failure comes out as it is."""

import asyncio

import pytest

from lakesweep import aio
from lakesweep.model.errors import Denied, StorageError


async def failing(error: Exception, after: asyncio.Event | None = None) -> None:
    if after is not None:
        await after.wait()
    raise error from OSError("what the system said")


async def test_results_come_in_the_order_asked():
    async def late(number: int) -> int:
        await asyncio.sleep(0.001 * (5 - number))
        return number

    assert await aio.together(late(number) for number in range(5)) == list(range(5))
    assert await aio.gather_bounded(range(5), late) == list(range(5))
    assert await aio.together([]) == []


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_than_the_limit_run_at_once(limit):
    running, most = 0, 0

    async def work(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await aio.gather_bounded(range(10), work, limit=limit)
    assert most == limit


async def test_the_first_failure_stops_the_rest_and_keeps_its_own_cause():
    ended, never = asyncio.Event(), asyncio.Event()

    async def waiting() -> None:
        try:
            await never.wait()
        finally:
            ended.set()

    with pytest.raises(StorageError) as raised:
        await aio.together([waiting(), failing(Denied("s3://lake", "no"))])
    assert ended.is_set()
    assert type(raised.value) is Denied
    assert isinstance(raised.value.__cause__, OSError)


async def test_a_failure_in_a_group_inside_a_group_comes_out_as_it_is():
    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(failing(Denied("s3://lake", "no")))

    with pytest.raises(Denied):
        await aio.together([inner()])


async def test_what_the_body_of_a_group_raises_comes_out_as_it_is():
    async def body() -> None:
        async with aio.task_group() as group:
            group.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            raise Denied("s3://lake", "no")

    with pytest.raises(Denied):
        await body()


async def test_whoever_waits_can_be_cancelled_and_takes_the_work_along():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    waiting = asyncio.create_task(aio.together([work()]))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


def test_a_stop_remembers_that_the_user_wanted_it():
    stop = aio.StopRequest()
    stop.set()  # a sweep that fails
    assert not stop.by_user
    stop.end("out of memory")
    assert not stop.by_user
    stop.end("Ctrl-C", by_user=True)
    stop.end("out of memory")
    assert (stop.by_user, stop.why) == (True, "out of memory")
