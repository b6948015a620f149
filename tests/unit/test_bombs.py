"""Small files that become large ones: the table is unreadable, and the process stays small.

All are read in one child process that may take little more memory than it has. Without the bounds it runs out of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders.bombs import BOMBS


@pytest.fixture(scope="module")
def told():
    command = [sys.executable, "-m", "tests.builders.bombs"]
    top = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=top)
    assert done.returncode == 0, done.stderr[-1500:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", BOMBS)
def test_what_becomes_too_large_is_refused_in_little_memory(told, kind):
    assert told[kind].startswith("refused"), told[kind]
