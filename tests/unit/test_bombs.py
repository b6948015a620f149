"""Small files that become large ones: the table is unreadable, and the process stays small.

Most are read in one child process that may take little more memory than it has. Without the bounds it runs out of it.
Those that Arrow decodes are read without such a limit, and the memory that this takes is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders.bombs import BOMBS, COLUMNAR


@pytest.fixture(scope="module")
def told():
    return in_a_process_of_its_own()


def in_a_process_of_its_own(*arguments):
    command = [sys.executable, "-m", "tests.builders.bombs", *arguments]
    top = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=top)
    assert done.returncode == 0, done.stderr[-1500:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", BOMBS)
def test_what_becomes_too_large_is_refused_in_little_memory(told, kind):
    assert told[kind].startswith("refused"), told[kind]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    directory = tmp_path_factory.mktemp("columnar")
    for kind, (make, _) in COLUMNAR.items():
        (directory / kind).write_bytes(make())
    return in_a_process_of_its_own(str(directory))


@pytest.mark.parametrize("kind", COLUMNAR)
def test_columns_that_become_too_large_are_refused_by_a_bound(measured, kind):
    assert measured["told"][kind].startswith("refused"), measured
    assert "allowed for a file of its size" in measured["told"][kind]


def test_columns_that_become_too_large_fill_no_process(measured):
    assert measured["grown"] < 64 << 20, measured  # the one that would be the service
    assert measured["child"] < 450 << 20, measured  # and the one that decodes
