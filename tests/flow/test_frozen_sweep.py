"""A process that is frozen longer than its lease sends not one more page, wherever the frost met it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

SWEEP = """
    import asyncio, os, signal, subprocess, sys
    from datetime import UTC, datetime, timedelta
    from lakesweep.cleanup.delete_conditions import LastCheck
    from lakesweep.ports.table import MatchBy
    from lakesweep.daemon.lease import lease
    from lakesweep.model.errors import LeaseLost
    from lakesweep.state.memory import MemoryStateStore
    from lakesweep.storage.local import deleter

    home, freezes_at, page = sys.argv[1], *map(int, sys.argv[2:])
    deleter.PAGE = page
    asked = 0

    class Clock:
        def now(self):
            return datetime.now(UTC)

    def freeze():
        subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)

    async def head():
        global asked
        asked += 1
        if asked == freezes_at:
            freeze()
        return frozenset()

    async def main():
        paths = sorted(f"file://{home}/{name}" for name in os.listdir(home))
        try:
            async with lease(MemoryStateStore(Clock()), "t", "me", timedelta(seconds=1)) as held, held.guarding():
                word = LastCheck(revalidate=head, match_by=MatchBy.ADDRESS, fence=held, stop=asyncio.Event())
                await deleter.LocalDeleter().delete(paths, word.about({}))
        except LeaseLost:
            pass

    asyncio.run(main())
"""


@pytest.mark.parametrize("page", [1, 3])
def test_no_page_leaves_a_process_that_was_frozen_beyond_its_lease(tmp_path: Path, page: int) -> None:
    home = tmp_path / "files"
    home.mkdir()
    for number in range(20):
        (home / f"{number:02}").touch()
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SWEEP), str(home), str(page), "5"], check=True, timeout=60, cwd=tmp_path
    )
    assert len(list(home.iterdir())) == 20 - 5 * (page - 1)


def test_a_freeze_in_the_middle_of_a_page_keeps_the_rest_of_it(tmp_path: Path) -> None:
    files, home = 10_000, tmp_path / "files"
    home.mkdir()
    for number in range(files):
        os.close(os.open(home / f"{number:05}", os.O_CREAT))
    command = [sys.executable, "-c", textwrap.dedent(SWEEP), str(home), "0", str(files)]
    with subprocess.Popen(command, cwd=tmp_path) as sweep:
        while (home / "00500").exists():  # files go in the order of their names
            assert sweep.poll() is None
            time.sleep(0)
        sweep.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sweep.pid, os.WSTOPPED | os.WNOWAIT)
        frozen = len(list(home.iterdir()))
        time.sleep(1.5)
        sweep.send_signal(signal.SIGCONT)
        assert sweep.wait(60) == 0
    assert 0 < frozen < files - 500, "not met in the middle"
    # One had been looked at before the freeze, and was about to go.
    assert frozen - len(list(home.iterdir())) <= 1
