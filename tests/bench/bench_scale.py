"""Both engines from 1 M to 100 M files, and a line through what was measured: `make bench-scale`.

What a run needs of disk and time is told first, and it does not begin where the disk has no room. Manifests have
statistics on one column: what is measured is the engines, not inflating. In-process must stay within 2 GiB, Spark
(`local[2]`) within 8 GiB for the driver, its JVM and its Python workers together; both plans must be as planted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.bench_engines import ENGINES, measure, show, table_of, write

SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
STATISTICS = 1
LIMITS = {"inprocess": 2 * 1024, "spark": 8 * 1024}
"""MiB of memory, everything together."""
_TABLE_BYTES = 260
"""Of manifests and listing pages on disk, for a file, as made at a million."""
_WORK_BYTES = {"inprocess": 400, "spark": 220}
"""Of scratch, shuffles and the plan, for a file, while an engine works, as measured at 100 M."""
_SECONDS = {"making": 2e-6, "inprocess": 3e-6, "spark": 4e-6}
"""For a file, on two cores with nothing else to do."""
_BILLION = 1_000_000_000


def needs(sizes: Sequence[int], kinds: Sequence[str]) -> tuple[float, float]:
    """Bytes of disk at the most, and seconds in all."""
    disk = max(sizes) * (_TABLE_BYTES + max(_WORK_BYTES[kind] for kind in kinds))
    return disk, sum(sizes) * sum(_SECONDS[name] for name in ("making", *kinds))


def fitted(points: Sequence[tuple[int, float]], at: int) -> tuple[float, float]:
    """A straight line by least squares of relative errors: its value there, and its largest relative error here."""
    weights = [1 / seconds**2 for _, seconds in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / spread
    start = mean_y - slope * mean_x
    return start + slope * at, max(abs(start + slope * x - y) / y for x, y in points)


def measured(files: int, kinds: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """One size: make the table, plan it with each engine, and remove it."""
    table, directory = table_of(files, STATISTICS), folder / "table"
    started = time.perf_counter()
    write(table, directory)
    print(f"\nmade {files:,} files in {time.perf_counter() - started:.0f} s", flush=True)
    results = {kind: measure(kind, files, directory) for kind in kinds}
    shutil.rmtree(directory)
    show(files, results)
    return results


def wrong(results: dict[str, dict[str, Any]]) -> list[str]:
    """What is not as it should be."""
    found = [f"{kind}: not the planted plan" for kind, got in results.items() if not got["right"]]
    if len({got["digest"] for got in results.values()}) > 1:
        found.append("the engines' plans differ")
    sums = {kind: sum(got["memory"].values()) for kind, got in results.items()}
    return found + [f"{kind}: {most} MiB, above {LIMITS[kind]}" for kind, most in sums.items() if most > LIMITS[kind]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell what it needs, measure, fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="leave out larger sizes")
    parser.add_argument("--files", type=int, action="append", help="sizes of your own; may be given several times")
    parser.add_argument("--only", choices=ENGINES, help="measure one engine instead of both")
    parser.add_argument("--in", dest="place", type=Path, default=Path(tempfile.gettempdir()), help="where to work")
    parser.add_argument("--needs", action="store_true", help="tell what it needs, and end")
    options = parser.parse_args(arguments)
    sizes = options.files or [size for size in SIZES if size <= options.largest] or [options.largest]
    kinds = [kind for kind in ENGINES if options.only in (None, kind)]
    disk, seconds = needs(sizes, kinds)
    print(
        f"needs about {disk / 1e9:.1f} GB in {options.place} and {seconds / 60:.0f} minutes on two quiet cores, "
        "besides a few seconds for each start of Spark",
        flush=True,
    )
    free = shutil.disk_usage(options.place).free
    if options.needs or free < disk:
        print(f"{free / 1e9:.0f} GB are free")
        return 0 if options.needs else 2
    points: dict[str, list[tuple[int, float]]] = {kind: [] for kind in kinds}
    faults: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.place, prefix="bench-scale-") as folder:
        for size in sizes:
            results = measured(size, kinds, Path(folder))
            faults += wrong(results)
            for kind, got in results.items():
                points[kind].append((size, got["cpu"]))
    for kind, found in points.items():
        print(f"{kind}: {json.dumps(found)}")
        if len(found) > 1:
            cpu, error = fitted(found, _BILLION)
            print(
                f"{kind}: a straight line gives {cpu:,.0f} CPU seconds for 1 B files; it is off by {error:.0%} at most"
            )
    print("\n".join(faults) or "every plan is as planted, with one digest, within its memory")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
