"""Where nothing is compiled, plain Python gives the same answers. The suites of the compiled parts run on it too."""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.builders import avro_rows
from tests.builders.avro_cases import cases, damaged, damages
from tests.builders.small_lake import small_table, write_local
from tests.laws import examples

from lakesweep.formats import _avro, avro_plain
from lakesweep.storage.local import _unlink, _walk, unlink_plain, walk_plain
from lakesweep.telemetry import compiled

ROOT = Path(__file__).parents[2]
PLAIN = {**os.environ, "LAKESWEEP_PURE_PYTHON": "1"}
SUITES = [
    "tests/unit/test_avro_reader.py",
    "tests/unit/test_avro_damage.py",
    "tests/unit/iceberg/test_container.py",
    "tests/unit/storage/test_local_delete.py",
    "tests/unit/storage/test_local_faults.py",
    "tests/unit/storage/test_local_reach.py",
    "tests/unit/storage/test_local_walk.py",
    "tests/contract/test_storage.py",
    "tests/contract/test_moving.py",
]
LONG = "another_way or short_way or every_object_is_listed or paths_are_long or slow_consumer or threads or bombs"
"""What takes a third of their time and shows nothing more."""
ALL = [*SUITES, "tests/unit/test_avro_columns.py", "tests/unit/test_avro_fuzz.py", "tests/unit/storage/test_local.py"]
ALL += ["tests/unit/storage/test_local_directories.py", "tests/contract/test_table.py", "tests/contract/test_engine.py"]


def run_suites(files: list[str], *more: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files, *more]
    done = subprocess.run(command, cwd=ROOT, env=PLAIN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_the_suites_of_the_compiled_parts_pass_without_them():
    chosen = f"not ({LONG}) and not memory and not seaweedfs and not stub and not simulated"
    told = run_suites(SUITES, "-m", "not soak and not server and not spark", "-k", chosen)
    assert " passed" in told


@pytest.mark.soak
def test_all_suites_around_the_compiled_parts_pass_without_them():
    assert " passed" in run_suites(ALL, "-m", "not soak and not spark")


# Avro: the same values, nulls and refusals, to the byte


def by(reader, program, blocks):
    made = reader.Reader(program.code, program.kinds)
    if not made.read([block for block, _ in blocks], [rows for _, rows in blocks]):
        return None
    return [
        (length, nulls, [None if part is None else bytes(part) for part in parts])
        for length, nulls, parts in made.finish()
    ]


@settings(max_examples=examples(60, soak=3000), deadline=None)
@given(cases(), damages)
def test_whole_and_damaged_rows_are_read_as_the_compiled_reader_does(case, damage):
    _, _, program, whole = case
    assert by(avro_plain, program, whole) == by(_avro, program, whole)
    blocks = damaged(whole, damage)
    assert by(avro_plain, program, blocks) == by(_avro, program, blocks)


@settings(max_examples=examples(60, soak=3000), deadline=None)
@given(cases(), st.binary(max_size=80), st.integers(0, 5))
def test_noise_is_read_or_refused_as_the_compiled_reader_does(case, noise, rows):
    _, _, program, _ = case
    assert by(avro_plain, program, [(noise, rows)]) == by(_avro, program, [(noise, rows)])


def answer(call, error):
    try:
        return call()
    except error as exc:
        return str(exc)


numbers = st.one_of(
    st.binary(max_size=14),
    st.builds(lambda count, rest: b"\xff" * count + rest, st.integers(7, 12), st.binary(max_size=3)),
    st.integers(-(2**63), 2**63 - 1).map(avro_rows.number),
)


@settings(max_examples=examples(200, soak=20_000), deadline=None)
@given(numbers, st.integers(-2, 16))
def test_numbers_are_read_as_the_compiled_reader_does(data, position):
    expected = answer(lambda: _avro.read_long(data, position), _avro.ContainerError)
    assert answer(lambda: avro_plain.read_long(data, position), avro_plain.ContainerError) == expected


@settings(max_examples=examples(200, soak=20_000), deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 300), st.binary(max_size=20)), max_size=4), damages, st.integers(-1, 4))
def test_blocks_are_stepped_over_as_the_compiled_reader_does(blocks, damage, position):
    sync = bytes(range(16))
    parts = [avro_rows.number(rows) + avro_rows.number(len(text)) + text + sync for rows, text in blocks]
    whole = b"".join(parts)

    def steps(reader, data):
        found = answer(lambda: reader.step(data, position, sync), reader.ContainerError)
        return found if isinstance(found, str) else [(one.rows, one.start, one.end) for one in found]

    for data in (whole, damaged([(whole, 1)], damage)[0][0]):
        assert steps(avro_plain, data) == steps(_avro, data)


def test_the_plain_reader_speaks_the_same_code():
    for plain, fast in ((avro_plain.Op, _avro.Op), (avro_plain.Kind, _avro.Kind)):
        assert {one.name: int(one) for one in plain} == {one.name: int(one) for one in fast}


# Local disks: the same files, the same answers, never through a link


@pytest.fixture
def tree(tmp_path):
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    outside.mkdir()
    for path in (outside / "kept", root / "one", root / "a/two", root / "a/b/three", root / "a/b/four"):
        path.write_text(path.name)
    os.utime(root / "one", ns=(0, 1_700_000_000_123_456_789))
    os.utime(root / "a/two", ns=(0, -5_500_000))
    (root / "a/link").symlink_to(outside)
    (root / "a/file-link").symlink_to(outside / "kept")
    (root / os.fsdecode(b"bad\xff")).write_text("x")
    os.mkfifo(root / "pipe")
    return root


def walked(module, root, *, deep, by_change):
    tree = module.Tree(os.fsencode(root), b"", b"file://x/", deep=deep, by_change=by_change)
    reader = module.Reader(tree)
    found = []
    while (rows := reader.read(2)) is not None:
        ends, text, sizes, times = (bytes(pa.foreign_buffer(*one, rows)) for one in rows.buffers)
        offsets = memoryview(ends).cast("i").tolist()
        names = [text[begin:end] for begin, end in itertools.pairwise(offsets)]
        found += zip(names, memoryview(sizes).cast("q").tolist(), memoryview(times).cast("q").tolist(), strict=True)
        assert rows.count == len(names)
    tree.close()
    return sorted(found), tree.take_skipped(), tree.waiting


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("by_change", [True, False])
def test_a_plain_walk_finds_what_the_compiled_one_finds(tree, deep, by_change):
    found, skipped, waiting = walked(walk_plain, tree, deep=deep, by_change=by_change)
    assert (found, skipped, waiting) == walked(_walk, tree, deep=deep, by_change=by_change)
    assert len(found) == (4 if deep else 1)
    assert skipped == 1


def test_a_plain_removal_answers_as_the_compiled_one_and_follows_no_link(tree):
    asked = ["one", "a/two", "a/b/three", "a/link/kept", "a/link/x", "a/file-link", "a/b", "none", "one/x", "a/none/x"]
    paths = [os.fsencode(tree / path) for path in asked]
    plain = unlink_plain.remove(paths)
    kept = tree.parent / "outside/kept"
    assert kept.read_text() == "kept"
    for name in ("one", "a/two", "a/b/three"):
        (tree / name).write_text(name)
    assert plain == _unlink.remove(paths)
    assert [code for code, _ in plain[:3]] == [0, 0, 0]
    assert plain[5] == plain[6] == (unlink_plain.NOT_A_FILE, 0)
    assert unlink_plain.remove([os.fsencode(tree / "a/b/four")], until=1) == [(unlink_plain.NOT_TRIED, 0)]
    directories = [os.fsencode(tree / path) for path in ("a/b", "a/link", "none")]
    expected = _unlink.remove(directories, directories=True)
    assert unlink_plain.remove(directories, directories=True) == expected
    assert abs(unlink_plain.steady_ns() - _unlink.steady_ns()) < 60 * 10**9


@pytest.mark.parametrize("by_change", [True, False])
@pytest.mark.parametrize("by", [unlink_plain, _unlink])
def test_a_file_with_another_time_than_expected_is_not_removed(tree, by, by_change):
    """By its modification alone, or by whichever of modification and change is younger."""
    names = ["one", "a/two", "a/b/three", "a/none"]
    written = 1_700_000_000_000
    for name in names[:3]:
        os.utime(tree / name, ns=(0, written * 1_000_000))
    changed = [(tree / name).stat().st_ctime_ns // 1_000_000 for name in names[:3]]
    times = changed if by_change else [written] * 3
    expected = [times[0] + 2, times[1] + 60_000, None, written]
    found = by.remove([os.fsencode(tree / name) for name in names], written_ms=expected, by_change=by_change)
    assert [code for code, _ in found] == [0, by.ANOTHER_FILE, 0, errno.ENOENT]
    assert [(tree / name).exists() for name in names] == [False, True, False, False]
    with pytest.raises(ValueError, match="a time for each"):
        by.remove([os.fsencode(tree / "a/two")], written_ms=[])


# How it is told

PLANNED = """
import json, logging, sys, lakesweep
logging.basicConfig(stream=sys.stderr, format="%(message)s")
from datetime import timedelta
found = [lakesweep.plan(sys.argv[1]) for _ in range(2)][-1]
print(json.dumps([found.summary.files, sorted(name for name in sys.modules if name.startswith("lakesweep."))]))
"""


def test_a_plan_without_compiled_parts_is_the_same_and_says_so_once(tmp_path):
    write_local(tmp_path / "t", small_table("t"))
    answers = {}
    for name, env in (("compiled", {**PLAIN, "LAKESWEEP_PURE_PYTHON": "0"}), ("plain", PLAIN)):
        command = [sys.executable, "-c", PLANNED, str(tmp_path / "t")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        answers[name] = (*json.loads(done.stdout), done.stderr.count("compiled_parts_missing"))
    assert answers["compiled"][0] == answers["plain"][0] == 3
    assert (answers["compiled"][2], answers["plain"][2]) == (0, 1)
    assert "lakesweep.formats._avro" not in answers["plain"][1]
    assert "lakesweep.storage.local._unlink" not in answers["plain"][1]


@pytest.mark.parametrize(
    ("value", "used"),
    [*((value, True) for value in ("", "0", "false", "False", "no", "off", " 0 ")), ("1", False), ("true", False)],
)
def test_a_value_for_no_does_not_ask_for_plain_python(monkeypatch, value, used):
    monkeypatch.setattr(compiled, "_without", {})
    monkeypatch.setenv("LAKESWEEP_PURE_PYTHON", value)
    assert compiled.is_there("lakesweep.formats._avro") is used


def test_a_part_that_cannot_be_loaded_is_named_once(monkeypatch):
    monkeypatch.setattr(compiled, "_without", {})
    monkeypatch.setattr(compiled, "_reported", [])
    monkeypatch.setattr(compiled, "PARTS", ("lakesweep.formats._avro", "lakesweep.formats._none"))
    monkeypatch.delenv("LAKESWEEP_PURE_PYTHON", raising=False)
    with capture_logs() as told:
        compiled.warn_if_missing()
        compiled.warn_if_missing()
    assert [line["parts"] for line in told] == [["_none"]]
    assert "lakesweep.formats._none" in told[0]["why"]
