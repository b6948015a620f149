"""A thousand stories of each format with fixed seeds, some of services, those that failed once, the simulator's laws.

Stories run in a process of their own: the simulator takes over names, jitter and logs of the whole process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.sim.loop import ReachesOut, VirtualLoop

STORIES = 1000
ROOT = Path(__file__).parents[2]


AS_PROCESS = "import os, runpy, sys; os.getpid = lambda: {}; runpy.run_module('tests.sim', run_name='__main__')"


def simulate(*arguments: str, hash_seed: str = "0", pid: int | None = None) -> subprocess.CompletedProcess[str]:
    program = ["-m", "tests.sim"] if pid is None else ["-c", AS_PROCESS.format(pid)]
    command = [sys.executable, *program, *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'service'}{os.pathsep}{ROOT}"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", ["iceberg", "delta", "paimon"])
def test_no_story_loses_anything(format):
    done = simulate("--format", format, "--stories", str(STORIES))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
    assert "leaked" not in done.stderr


@pytest.mark.timeout(300)
def test_no_story_with_a_trash_or_without_listings_loses_anything():
    done = simulate("--first", "10000000", "--stories", "60")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


@pytest.mark.timeout(300)
def test_no_story_of_the_wider_world_loses_anything():
    done = simulate("--first", "20000000", "--stories", "60")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


@pytest.mark.timeout(300)
def test_no_story_of_a_service_loses_anything():
    done = simulate("--service", "--stories", "9")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


@pytest.mark.timeout(300)
def test_no_story_of_a_service_with_a_subject_loses_anything():
    done = simulate("--service", "--first", "20000000", "--stories", "9")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


@pytest.mark.parametrize(
    "kind", [("--format", "iceberg"), ("--format", "delta"), ("--format", "paimon"), ("--service",)]
)
def test_a_seed_tells_the_same_story_in_every_process(kind):
    one, other = (simulate(*kind, "--seed", "7", hash_seed=seed, pid=pid) for seed, pid in (("1", 9), ("2", 123456)))
    assert "storage.list" in one.stdout
    assert "  writer  " in one.stdout
    assert "state.recall unchanged:acme/prod/t" in one.stdout
    assert one.stdout == other.stdout


ORDER = """
from tests.sim.story import Story
one, other = ([Story("iceberg", seed).run().calls for seed in order] for order in ((0, 1), (1, 0)))
print(one == other[::-1])
"""


def test_a_seed_tells_the_same_story_after_any_other():
    done = subprocess.run([sys.executable, "-c", ORDER], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_an_expiry_that_is_overtaken_at_its_commit_deletes_no_file():
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.found"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_story_that_looks_for_a_real_network_ends_with_that():
    async def asks():
        with suppress(BaseException):
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", 9)

    loop = VirtualLoop()
    with pytest.raises(ReachesOut, match=r"127\.0\.0\.1"):
        loop.run(asks())
    loop.close()


LOSES = """
from tests.sim.shrink import shrink
from tests.sim.story import Story
from lakesweep.cleanup import guards
guards.cutoff = lambda policy, minimum_age, now, store_now: now  # nothing is too young to go
found = next(one for one in (Story("iceberg", seed).run() for seed in range(400)) if one.failure)
shorter = shrink(found)
again = Story("iceberg", found.seed, shorter.script, tracing=True).run()
print(again.failure)
print(sum(1 + len(step.inner) for step in found.script), sum(1 + len(step.inner) for step in again.script))
"""


def test_what_a_broken_guard_loses_is_found_and_shrunk():
    done = subprocess.run([sys.executable, "-c", LOSES], cwd=ROOT, capture_output=True, text=True, check=True)
    failure, counts = done.stdout.splitlines()
    whole, shrunk = map(int, counts.split())
    assert "which is needed" in failure
    assert shrunk <= min(whole, 4)
