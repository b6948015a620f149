"""Commands in a Spark job or notebook: which settings they use, and how a notebook's stop button stops them."""

import asyncio
import signal
import threading

import pytest

from lakesweep.aio import StopRequest
from lakesweep.cli import interrupts, job
from lakesweep.engines.spark import driver
from lakesweep.settings.load import load

FILE = """
[engine]
kind = "inprocess"
[engine.spark]
master = "spark://elsewhere:7077"
remote = "sc://elsewhere:15002"
scratch = "s3://ops/scratch"
"""


@pytest.fixture
def in_session(monkeypatch):
    """A function (command) -> its exit code, in a process that has a session."""
    monkeypatch.setattr(driver, "adopt", lambda: "yarn")

    def run(command):
        monkeypatch.setattr(job.commands, "main", command)
        return job.main(["plan"])

    return run


@pytest.mark.parametrize("kind", [None, "auto"])
@pytest.mark.parametrize("notebook", [False, True])
def test_a_job_uses_its_own_session_whatever_the_settings_say(in_session, tmp_path, monkeypatch, kind, notebook):
    (tmp_path / "lakesweep.toml").write_text(FILE)
    monkeypatch.setenv("LAKESWEEP_ENGINE__SPARK__REMOTE", "sc://another:15002")
    if kind:
        monkeypatch.setenv("LAKESWEEP_ENGINE__KIND", kind)
    seen = []

    def command(_):
        engine = load(tmp_path / "lakesweep.toml").engine
        seen.append((engine.kind, engine.spark.master, engine.spark.remote, engine.spark.scratch))
        return 3

    async def cell():
        return in_session(command)

    assert (asyncio.run(cell()) if notebook else in_session(command)) == 3
    assert seen == [(kind or "spark", "yarn", None, "s3://ops/scratch")]
    assert load(tmp_path / "lakesweep.toml").engine.spark.remote == "sc://another:15002"


@pytest.mark.parametrize("early", [False, True])
def test_the_stop_button_of_a_notebook_stops_the_command_orderly(in_session, early):
    stop_button, ended = [], []

    async def work():
        stop = StopRequest()
        if early:  # before there is anything to stop
            stop_button[0]()
            await asyncio.sleep(0.2)
        with interrupts.stop_on_interrupt(stop, "then this"):
            if not early:
                stop_button[0]()
            async with asyncio.timeout(20):
                await stop.wait()
        await asyncio.sleep(0.1)
        ended.append(stop.why)
        return 130

    async def cell():
        return in_session(lambda _: asyncio.run(work()))

    me = threading.main_thread().ident
    stop_button.append(lambda: signal.pthread_kill(me, signal.SIGINT))
    loop = asyncio.new_event_loop()  # a notebook's: `asyncio.run` would catch Ctrl-C by itself
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
    assert ended == ["interrupted by Ctrl-C; then this"]
