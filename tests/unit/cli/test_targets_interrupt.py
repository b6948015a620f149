"""Ctrl-C and SIGTERM end the tables that are still to come, whatever the sentence about it says."""

import asyncio
import signal

import pytest

from lakesweep.aio import StopRequest
from lakesweep.cli.interrupts import stop_on_interrupt, stop_on_sigterm


async def test_ctrl_c_marks_the_stop_as_the_users(capsys):
    stop = StopRequest()
    with stop_on_interrupt(stop, "any sentence"):
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(stop.wait(), 5)
    assert (stop.by_user, stop.why) == (True, "interrupted by Ctrl-C; any sentence")
    assert "press Ctrl-C again" in capsys.readouterr().err


async def test_sigterm_is_the_first_ctrl_c_however_often_it_comes(capsys):
    stop = StopRequest()
    with stop_on_sigterm():
        with stop_on_interrupt(stop, "any sentence"):
            for _ in range(3):
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 5)
        assert (stop.by_user, stop.why) == (True, "interrupted by SIGTERM; any sentence")
        following = StopRequest()
        with stop_on_interrupt(following, "any sentence"):
            assert following.by_user
    assert capsys.readouterr().err.count("SIGTERM: stopping") == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_sigterm_cancels_what_cannot_be_stopped_in_an_orderly_way():
    async def work():
        with stop_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(20)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


async def test_a_second_sigterm_ends_a_command_that_waits_for_an_answer():
    with stop_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):  # of the first one
            await asyncio.sleep(20)
    asyncio.current_task().uncancel()


async def test_sigterm_stays_with_the_host_that_handles_it():
    def of_the_host(*_):
        pass

    before = signal.signal(signal.SIGTERM, of_the_host)
    try:
        with stop_on_sigterm():
            assert signal.getsignal(signal.SIGTERM) is of_the_host
        assert signal.getsignal(signal.SIGTERM) is of_the_host
    finally:
        signal.signal(signal.SIGTERM, before)
