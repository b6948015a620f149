"""How fast we walk a local tree, against `find`: `python -m tests.bench.bench_walk`.

Both give path, size and time of every file, in turns on one warm tree: one that is made here, or `--tree`. CPU is of
all threads and, for `find`, of its process; on a busy machine it says more than the wall time. `--plain` compares the
compiled walk with our own plain Python instead.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.bench import plain
from tests.bench.places import LocalPlace

from lakesweep.model.location import Location
from lakesweep.storage.local.store import LocalStorage

ROUNDS = 5
PER_DIRECTORY = 100


async def walk(root: Path) -> int:
    """Our local listing."""
    return sum([batch.num_rows async for batch in LocalStorage().list(Location("file", "", str(root)))])


def find(root: Path) -> int:
    """GNU find."""
    command = ["find", str(root), "-type", "f", "-printf", "%s %T@ %p\\n"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.count(b"\n")


def measured(call: Callable[[], int], expected: int, who: int) -> tuple[float, float]:
    """Wall and CPU seconds."""
    before, started = resource.getrusage(who), time.perf_counter()
    assert call() == expected
    wall, after = time.perf_counter() - started, resource.getrusage(who)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def made(files: int) -> Iterator[Path]:
    """A tree with so many files."""
    names = (
        f"data/dt={number // PER_DIRECTORY:05d}/{number:08d}-a1b2c3d4-e5f6-7890-abcd-ef0123456789-00001.parquet"
        for number in range(files)
    )
    with tempfile.TemporaryDirectory() as folder:
        LocalPlace(root=Path(folder)).make(names)
        yield Path(folder)


def compare(root: Path) -> None:
    """Print the table."""
    files = find(root)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(measured(lambda: asyncio.run(walk(root)), files, resource.RUSAGE_SELF))
        theirs.append(measured(lambda: find(root), files, resource.RUSAGE_CHILDREN))
    best = {name: tuple(map(min, zip(*runs, strict=True))) for name, runs in (("ours", ours), ("find", theirs))}
    print(f"\nLocal walk, {files:,} files (path, size, time), best of {ROUNDS}")
    for name, (wall, cpu) in best.items():
        print(f"{name:6} {wall:>8.2f} s {cpu:>8.2f} CPU s {files / wall:>12,.0f} files/s")
    wall, cpu = (mine / other for mine, other in zip(best["ours"], best["find"], strict=True))
    print(f"ours / find: {wall:.2f} times the time, {cpu:.2f} times the CPU")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--tree", type=Path, help="walk this directory instead of one made for the purpose")
    parser.add_argument("--plain", action="store_true", help="against our own plain Python instead of find")
    parser.add_argument(plain.FIGURES, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with nullcontext(asked.tree) if asked.tree else made(asked.files) as root:
        if asked.figures:
            cpu = measured(lambda: asyncio.run(walk(root)), find(root), resource.RUSAGE_SELF)[1]
            plain.print_figures("lakesweep.storage.local._walk", {f"{find(root):,} files": cpu})
        elif asked.plain:
            plain.compare("tests.bench.bench_walk", ["--tree", str(root)])
        else:
            compare(root)


if __name__ == "__main__":
    main()
