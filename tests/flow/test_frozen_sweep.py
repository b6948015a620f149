"""A process that is frozen longer than its lease sends not one more page, wherever the frost met it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SWEEP = """
    import asyncio, os, signal, subprocess, sys
    from datetime import UTC, datetime, timedelta
    from lakesweep.cleanup.lastword import LastWord
    from lakesweep.cleanup.ports import MatchBy
    from lakesweep.daemon.worker import lease
    from lakesweep.model.errors import LeaseLost
    from lakesweep.state.memory import MemoryStateStore
    from lakesweep.storage import local_delete

    home, freezes_at = sys.argv[1], int(sys.argv[2])
    local_delete._PAGE = 5
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
                word = LastWord(revalidate=head, match_by=MatchBy.ADDRESS, fence=held, stop=asyncio.Event())
                await local_delete.LocalDeleter().delete(paths, word.about({}))
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
        [sys.executable, "-c", textwrap.dedent(SWEEP), str(home), str(page)], check=True, timeout=60, cwd=tmp_path
    )
    assert len(list(home.iterdir())) == 20 - 5 * (page - 1)
