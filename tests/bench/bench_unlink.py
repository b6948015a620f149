"""How fast local files are removed, compiled against our own plain Python: `python -m tests.bench.bench_unlink`.

Each process makes a tree and removes its files in one call, as the deleter does, those of one directory beside each
other. Making the tree is not measured.
"""

from __future__ import annotations

import argparse
import time

from tests.bench import plain
from tests.bench.bench_walk import made

from lakesweep.storage.local import system_calls


def removed(files: int) -> float:
    """CPU seconds for all of them."""
    with made(files) as root:
        paths = sorted(str(path).encode() for path in root.rglob("*") if path.is_file())
        assert len(paths) == files
        before = time.process_time()
        answers = system_calls.remove(paths)
        cpu = time.process_time() - before
    assert set(answers) == {(0, 0)}
    return cpu


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument(plain.FIGURES, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.figures:
        plain.print_figures("lakesweep.storage.local._unlink", {f"{asked.files:,} files": removed(asked.files)})
    else:
        plain.compare("tests.bench.bench_unlink", ["--files", str(asked.files)])


if __name__ == "__main__":
    main()
