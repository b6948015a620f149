"""Empty directories: only those that hold nothing at any depth, and that nobody has touched for long."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.unit.storage.limits import unprivileged

from lakesweep.model.files import AgeBy
from lakesweep.storage.local.walk import empty_directories

CUTOFF = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = CUTOFF - timedelta(seconds=1), CUTOFF

OTHERS = st.sampled_from(["file", "link to an empty directory", "dangling link"])
DIRECTORIES = st.recursive(
    st.tuples(st.booleans(), st.dictionaries(st.sampled_from("ab"), OTHERS, max_size=1)),
    lambda inner: st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abc"), OTHERS | inner, max_size=3)),
    max_leaves=10,
)


def set_time(path: Path, when: datetime) -> None:
    os.utime(path, (when.timestamp(), when.timestamp()), follow_symlinks=False)


def build(at: Path, is_old: bool, entries: dict, elsewhere: Path, going: list[str]) -> bool:
    """Make a directory. May it go? Then it is added to those that may."""
    at.mkdir()
    goes = is_old
    for name, what in entries.items():
        match what:
            case (bool(), dict()):
                goes &= build(at / name, *what, elsewhere, going)
                continue
            case "file":
                (at / name).touch()
            case "link to an empty directory":
                (at / name).symlink_to(elsewhere)
            case "dangling link":
                (at / name).symlink_to("/nowhere")
        set_time(at / name, OLD)
        goes = False
    set_time(at, OLD if is_old else NEW)
    going += [str(at)] * goes
    return goes


@settings(deadline=None, max_examples=examples(80, soak=2000))
@given(tree=DIRECTORIES)
def test_a_directory_is_empty_if_nothing_is_in_it_but_old_empty_directories(tmp_path_factory, tree):
    top = tmp_path_factory.mktemp("lake")
    (top / "empty").mkdir()
    set_time(top / "empty", OLD)
    going: list[str] = []
    build(top / "table", *tree, top / "empty", going)
    found = empty_directories(str(top / "table"), CUTOFF, AgeBy.MODIFICATION)
    assert set(found) == set(going) - {str(top / "table")}
    for path in found:  # each after everything below it
        Path(path).rmdir()
    shutil.rmtree(top)


def test_a_directory_that_cannot_be_read_is_not_empty():
    root = Path(tempfile.mkdtemp())
    (root / "outer/shut/inner").mkdir(parents=True)
    root.chmod(0o755)
    for path in (root / "outer/shut/inner", root / "outer/shut", root / "outer"):
        set_time(path, OLD)
    (root / "outer/shut").chmod(0o000)
    with unprivileged():
        assert empty_directories(str(root), CUTOFF, AgeBy.MODIFICATION) == []
    (root / "outer/shut").chmod(0o755)
    assert empty_directories(str(root), CUTOFF, AgeBy.MODIFICATION) == [
        str(root / name) for name in ("outer/shut/inner", "outer/shut", "outer")
    ]
    shutil.rmtree(root)


def test_an_empty_directory_that_has_just_come_is_not_old(tmp_path):
    (tmp_path / "outside/d").mkdir(parents=True)
    (tmp_path / "table").mkdir()
    set_time(tmp_path / "outside/d", OLD)
    came = (tmp_path / "outside/d").rename(tmp_path / "table/d")
    set_time(came, OLD)
    assert empty_directories(str(tmp_path / "table"), CUTOFF, AgeBy.CHANGE) == []
    assert empty_directories(str(tmp_path / "table"), CUTOFF, AgeBy.MODIFICATION) == [str(came)]


def test_a_root_that_is_not_there_has_none(tmp_path):
    assert empty_directories(str(tmp_path / "nowhere"), CUTOFF, AgeBy.MODIFICATION) == []


@pytest.mark.parametrize("seconds", [2**39, 2**62, -(2**37), -(2**62)])
def test_a_time_that_is_no_date_is_far_in_the_future_or_in_the_past(seconds):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
        directory = Path(root) / "d"
        directory.mkdir()
        os.utime(directory, ns=(0, seconds * 10**9))
        assert empty_directories(root, CUTOFF, AgeBy.MODIFICATION) == [str(directory)] * (directory.stat().st_mtime < 0)
