"""Campaigns against the local store: directories that become links while files are read, written and deleted, and names
that nobody would choose. What was counted is printed, for the record of `make soak`."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
from tests.laws import examples

from lakesweep.cleanup.deleter import Fate, GatedDeleter
from lakesweep.model.errors import NotFound, OutsideRoot, StorageError
from lakesweep.model.location import Location
from lakesweep.storage.registry import open_deleter, open_storage, open_writer
from lakesweep.storage.spec import Confine, StorageSpec

PIECES = [
    *("a", "B", "é", "e\u0301", "漢", "😀", " ", "  ", "\n", "\t", "\r", "\x7f", "\x01", "\u202e", "\u2028", "\ufeff"),
    *(
        "..",
        "...",
        "%2F",
        "%2e%2e%2f",
        "#",
        "?",
        "*",
        "[a]",
        "&",
        ";",
        "|",
        "$(x)",
        "`x`",
        "'",
        '"',
        "\\",
        "\\x2f",
        "~",
        "-",
    ),
    *(":", "file:", "s3:", "=", "<", ">", "&amp;", "%00", "+", "{}", "{0}", "%s", ".parquet", ".tmp", ".hidden", "_"),
]


SWAPPER = """
import os, select, shutil, sys
place, outside = sys.argv[1:]
aside, count = place + " aside", 0
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        os.rename(place, aside)
        try:
            os.symlink(outside, place)
            os.unlink(place)
        except OSError:
            pass  # a writer has made the directory anew meanwhile
        while os.path.isdir(aside):
            try:
                os.rename(aside, place)
            except OSError:
                shutil.rmtree(place, ignore_errors=True)
        count += 1
        for _ in range(count % 3 * 200):
            pass  # let the others meet the directory, too
print(count)
"""


class Swaps:
    """Takes a directory away and puts a link to another in its place, over and over, in a process of its own."""

    def __init__(self, place: Path, outside: Path) -> None:
        self.count = 0
        self._command = [sys.executable, "-c", SWAPPER, str(place), str(outside)]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapping:
            swapping.stdout.readline()
            try:
                yield
            finally:
                told, _ = swapping.communicate("stop")
                self.count = int(told)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "root" / "table" / "data"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "umbrella"
    place.mkdir()
    return place


def root_of(table: Path) -> Location:
    return Location.parse(str(table.parents[1]))


async def test_deletes_lose_nothing_behind_a_link_that_comes_and_goes(table, outside, capsys):
    """Every delete that reaches the directory itself is meant; none that reaches the link is obeyed."""
    names = [f"{number}.parquet" for number in range(examples(2_000, soak=80_000))]
    batch, done = 100, Counter()
    root = root_of(table)
    deleter = GatedDeleter(open_deleter(StorageSpec()), tenant_root=root, table_roots=[root.join("table")])
    for name in names:
        (outside / name).touch()
        (table / name).touch()
    swaps = Swaps(table, outside)
    with swaps.going_on():
        for first in [*range(0, len(names), batch)] * examples(1, soak=5):
            answers = await deleter.delete([f"file://{table}/{name}" for name in names[first : first + batch]])
            done.update(answer.fate for answer in answers)
    await deleter.aclose()
    assert {path.name for path in outside.iterdir()} == set(names)
    assert len(names) - len(list(table.iterdir())) == done[Fate.DELETED]
    with capsys.disabled():
        print(f"\n{swaps.count} swaps during {done.total()} deletes: {dict(done)}, nothing outside was lost")
    assert done[Fate.DELETED] or len(names) < 10_000  # few of them may all come while it is away
    assert swaps.count > 0


async def test_reads_and_writes_go_through_no_link_that_comes_and_goes(table, outside, capsys):
    wanted, seen = examples(500, soak=20_000), Counter()
    spec = StorageSpec(attempts=1, confine=Confine(places=(root_of(table),)))
    (table / "a").write_bytes(b"ours")
    (outside / "a").write_bytes(b"theirs")
    storage, writer, swaps = open_storage(spec), open_writer(spec), Swaps(table, outside)
    with swaps.going_on():
        for number in range(wanted):
            try:
                assert await storage.read(Location.parse(f"{table}/a")) == b"ours"
                seen["read"] += 1
            except (NotFound, OutsideRoot) as exc:
                seen[type(exc).__name__] += 1
            try:
                await writer.put(Location.parse(f"{table}/w{number % 7}"), b"ours", create_only=False)
                seen["written"] += 1
            except StorageError as exc:
                seen[f"write: {type(exc).__name__}"] += 1
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"a": b"theirs"}
    with capsys.disabled():
        print(f"\n{swaps.count} swaps during {wanted} reads and writes: {dict(seen)}, nothing outside was touched")
    assert seen["read"]
    assert swaps.count > 0


def hostile_names(count: int) -> list[str]:
    chance = random.Random(20_260)
    names: set[str] = {"a" * 255, "é" * 127}
    while len(names) < count:
        name = "".join(chance.choices(PIECES, k=chance.randint(1, 9)))
        if name not in (".", "..") and len(name.encode()) <= 255:
            names.add(name)
    return sorted(names)


async def test_hostile_names_are_listed_read_and_deleted_exactly(table, capsys):
    names = hostile_names(examples(300, soak=3_000))
    for name in names:
        (table / name).write_bytes(name.encode())
    root = root_of(table)
    spec = StorageSpec(confine=Confine(places=(root,)))
    storage = open_storage(spec)
    async with aclosing(storage.list(root)) as batches:
        listed = [path async for batch in batches for path in batch.column("path").to_pylist()]
    assert sorted(listed) == sorted(f"file://{table}/{name}" for name in names)
    for path in listed:
        assert (await storage.read(Location.parse(path))).decode() == path.removeprefix(f"file://{table}/")
    going = sorted(random.Random(7).sample(listed, len(listed) // 2))
    deleter = GatedDeleter(open_deleter(StorageSpec()), tenant_root=root, table_roots=[root.join("table")])
    answers = await deleter.delete(going)
    await asyncio.gather(deleter.aclose(), storage.aclose())
    assert {answer.fate for answer in answers} == {Fate.DELETED}
    left = {f"file://{table}/{path.name}" for path in table.iterdir()}
    assert left == set(listed) - set(going)
    with capsys.disabled():
        print(f"\n{len(listed)} hostile names listed and read, {len(going)} of them deleted exactly")
