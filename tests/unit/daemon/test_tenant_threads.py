"""A tenant whose calls hang keeps its own threads, and nobody else's."""

import asyncio
import subprocess
import sys
import threading

import pytest

from lakesweep.aio import working_for
from lakesweep.daemon.tenant_threads import TenantThreads


@pytest.fixture
async def threads():
    mine = TenantThreads(most=3, idle_seconds=0.05)
    asyncio.get_running_loop().set_default_executor(mine)
    return mine


async def hang(tenant, release, calls):
    with working_for(tenant):
        return [asyncio.create_task(asyncio.to_thread(release.wait)) for _ in range(calls)]


async def test_calls_that_hang_for_one_tenant_leave_the_others_theirs(threads):
    release = threading.Event()
    hanging = await hang("acme", release, 20)
    with working_for("globex"):
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "answer"), 5) == "answer"
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "service"), 5) == "service"
    assert not any(task.done() for task in hanging)
    release.set()
    assert all(await asyncio.gather(*hanging))


async def test_a_tenant_has_only_so_many_threads(threads):
    together, most, lock, release = 0, 0, threading.Lock(), threading.Event()

    def call():
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        release.wait(0.01)
        with lock:
            together -= 1

    with working_for("acme"):
        await asyncio.gather(*(asyncio.to_thread(call) for _ in range(30)))
    assert most == 3


async def test_an_error_reaches_the_caller_and_the_thread_goes_on(threads):
    with working_for("acme"):
        for _ in range(5):
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(lambda: 1 // 0)
        assert await asyncio.to_thread(lambda: 1) == 1


async def test_threads_without_work_end(threads):
    with working_for("acme"):
        await asyncio.gather(*(asyncio.to_thread(threading.get_ident) for _ in range(9)))
    async with asyncio.timeout(10):
        while any(thread.name == "tenant acme" for thread in threading.enumerate()):
            await asyncio.sleep(0.01)
    with working_for("acme"):
        assert await asyncio.to_thread(lambda: "again") == "again"


async def test_a_call_that_was_cancelled_before_its_turn_is_not_made(threads):
    release, made = threading.Event(), []
    hanging = await hang("acme", release, 3)
    with working_for("acme"):
        waiting = asyncio.create_task(asyncio.to_thread(made.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    await asyncio.gather(*hanging)
    with working_for("acme"):
        await asyncio.to_thread(lambda: None)
    assert made == []


def test_a_thread_that_hangs_does_not_keep_the_process():
    program = """
import asyncio, threading
from lakesweep.aio import working_for
from lakesweep.daemon.tenant_threads import TenantThreads
async def main():
    asyncio.get_running_loop().set_default_executor(TenantThreads())
    with working_for("acme"):
        try:
            await asyncio.wait_for(asyncio.to_thread(threading.Event().wait), 0.1)
        except TimeoutError:
            print("gave up")
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "gave up\n"
