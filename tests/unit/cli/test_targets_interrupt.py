"""Ctrl-C ends the tables that are still to come, whatever the sentence about it says."""

import asyncio
import signal

from lakesweep.aio import StopRequest
from lakesweep.cli.targets import stop_on_interrupt


async def test_ctrl_c_marks_the_stop_as_the_users(capsys):
    stop = StopRequest()
    with stop_on_interrupt(stop, "any sentence"):
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(stop.wait(), 5)
    assert (stop.by_user, stop.why) == (True, "any sentence")
    assert "press Ctrl-C again" in capsys.readouterr().err
