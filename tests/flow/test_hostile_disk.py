"""Campaigns against the local store: directories that become links while files are read, written and deleted, and names
that nobody would choose. What was counted is printed, for the record of `make soak`."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
from tests.laws import examples

from lakesweep.cleanup.delete_gate import GatedDeleter
from lakesweep.model.errors import NotFound, OutsideRoot, StorageError
from lakesweep.model.location import Location
from lakesweep.ports.deleter import DeleteStatus
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

SWAPS = 151_437
"""Swaps that a campaign by hand made during 80,000 deletes."""
PAGE = 20
"""Files deleted by one call, between two swaps or across many."""

SWAPPER = """
import ctypes, os, select, shutil, sys
place, outside, counter = sys.argv[1:]
counter = os.open(counter, os.O_CREAT | os.O_WRONLY, 0o600)
link, away, count = place + " link", place + " away", 0
renameat2, here = ctypes.CDLL(None).renameat2, -100  # AT_FDCWD
one, two, three = (os.fsencode(path) for path in (place, link, away))
EXCHANGE, NO_REPLACE = 2, 1
os.symlink(outside, link)
if renameat2(here, one, here, two, EXCHANGE):
    sys.exit("no exchange of names on this file system")
print("begun", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(501):  # odd, so that now the link and now the directory is taken away
        renameat2(here, one, here, two, EXCHANGE)
        count += 1
        for _ in range(count % 3 * 50):
            pass  # let the others meet what is there
    os.pwrite(counter, b"%d" % count, 0)
    os.rename(place, away)  # there is neither for a moment
    while renameat2(here, three, here, one, NO_REPLACE):
        shutil.rmtree(place, ignore_errors=True)  # a writer has made a directory meanwhile
if os.path.islink(place):
    renameat2(here, one, here, two, EXCHANGE)
os.unlink(link)
"""


class Swaps:
    """Exchanges a directory and a link to another in one step, over and over, in a process of its own."""

    def __init__(self, place: Path, outside: Path) -> None:
        self._counter = outside.with_name("swaps")
        self._command = [sys.executable, "-c", SWAPPER, str(place), str(outside), str(self._counter)]

    @property
    def count(self) -> int:
        """Up to now."""
        return int(self._counter.read_bytes() or 0)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as swapping:
            assert swapping.stdout.readline(), "the swaps did not begin"
            try:
                yield
            finally:
                swapping.communicate("stop")


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
    names = [f"{number}.parquet" for number in range(examples(500, soak=80_000))]
    done, left, made = Counter(), [], 0
    root, inside = root_of(table), os.open(table, os.O_DIRECTORY)
    deleter = GatedDeleter(open_deleter(StorageSpec()), tenant_root=root, table_roots=[root.join("table")])
    for name in names:
        (outside / name).touch()
    swaps = Swaps(table, outside)
    with swaps.going_on():
        while left or not made or swaps.count < examples(1, soak=SWAPS):
            if not left:  # all have gone, and there were too few swaps
                for name in names:
                    os.close(os.open(name, os.O_CREAT | os.O_EXCL, dir_fd=inside))
                left, made = names, made + len(names)
            asked, left = left, []
            for page in (asked[first : first + PAGE] for first in range(0, len(asked), PAGE)):
                answers = await deleter.delete([f"file://{table}/{name}" for name in page])
                done.update(answer.status for answer in answers)
                left += [
                    name
                    for name, answer in zip(page, answers, strict=True)
                    if answer.status is not DeleteStatus.DELETED
                ]
    await deleter.aclose()
    os.close(inside)
    assert {path.name for path in outside.iterdir()} == set(names)
    assert list(table.iterdir()) == []
    assert done[DeleteStatus.DELETED] == made
    with capsys.disabled():
        print(f"\n{swaps.count} swaps during {made} deletes, of {done.total()} asked for; 0 files lost outside")


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
    names = hostile_names(examples(300, soak=6_000))
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
    assert {answer.status for answer in answers} == {DeleteStatus.DELETED}
    left = {f"file://{table}/{path.name}" for path in table.iterdir()}
    assert left == set(listed) - set(going)
    with capsys.disabled():
        print(f"\n{len(listed)} hostile names listed and read, {len(going)} of them deleted exactly")
