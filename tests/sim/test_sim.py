"""A thousand stories of each format with fixed seeds, the seeds that failed once, and the simulator's own laws.

Stories run in a process of their own: the simulator takes over names, jitter and logs of the whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STORIES = 1000
ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.sim", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", ["iceberg", "delta", "paimon"])
def test_no_story_loses_anything(format):
    done = simulate("--format", format, "--stories", str(STORIES))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]


@pytest.mark.parametrize("format", ["iceberg", "delta", "paimon"])
def test_a_seed_tells_the_same_story_in_every_process(format):
    one, other = (simulate("--format", format, "--seed", "7", hash_seed=seed) for seed in ("1", "2"))
    assert "a cycle begins" in one.stdout
    assert one.stdout == other.stdout


def test_an_expiry_that_is_overtaken_at_its_commit_deletes_no_file():
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.found"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
