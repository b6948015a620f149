"""Ours against the tools people use today, in one run, on the same tables: `python -m tests.bench.bench_peers`.

Each side must find, or delete, exactly the planted files, or there is no result. Our time is counted from the start
of the process with an empty cache; the peers' sessions are started and warmed up before the clock runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import compare_delta, compare_iceberg, compare_paimon, distance, results
from tests.bench.comparing import AWAY_SECONDS, BUCKET, Bench, Size
from tests.servers import seaweedfs

SHORT = {
    "iceberg": [Size(files=10_000), Size(files=10_000, s3=True)],
    "delta": [Size(files=10_000), Size(files=10_000, s3=True)],
    "paimon": [Size(files=10_000)],
}
# Small tables first: the peer's one session keeps the heap that a large one made it take.
FULL = {
    "iceberg": [
        Size(files=10_000),
        Size(files=10_000, s3=True),
        Size(files=100_000),
        Size(files=100_000, s3=True),
        Size(files=1_000_000),
        Size(files=1_000_000, s3=True),
        Size(files=1_000_000, s3=True, far=True),
        Size(files=10_000_000),
    ],
    "delta": [
        Size(files=10_000),
        Size(files=100_000),
        Size(files=1_000_000, spark=False),
        Size(files=10_000, s3=True),
        Size(files=100_000, s3=True),
        Size(files=1_000_000, s3=True),
    ],
    "paimon": [Size(files=10_000), Size(files=100_000), Size(files=1_000_000)],
}
LARGEST = 1_000_000
"""Larger tables take well over an hour, most of it Iceberg's own dry run: only with `--files`."""
COMPARE = {
    "iceberg": compare_iceberg.compare,
    "delta": compare_delta.compare,
    "paimon": compare_paimon.compare,
}


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="small tables only: a few minutes")
    parser.add_argument("--only", choices=COMPARE, action="append", help="some formats only")
    parser.add_argument(
        "--docs", type=Path, help="keep results and charts in this directory, beside those of other runs"
    )
    parser.add_argument(
        "--files",
        type=int,
        action="append",
        help="tables of this many files only; 10000000 needs 12 M free inodes",
    )
    parser.add_argument("--local", action="store_true", help="local tables only")
    parser.add_argument("--s3", action="store_true", help="tables on S3 only")
    parser.add_argument("--far", action="store_true", help="only tables on an S3 store that is far away")
    options = parser.parse_args()
    sizes = SHORT if options.short else FULL
    with (
        tempfile.TemporaryDirectory(prefix="lakesweep-bench-") as scratch,
        _server(Path(scratch)) as server,
        distance.away(server.endpoint_url, AWAY_SECONDS) as far,
    ):
        bench = Bench(work=Path(scratch), server=server, far_endpoint=far, docs=options.docs)
        for name in options.only or COMPARE:
            chosen = [size for size in sizes[name] if _wanted(size, options.files)]
            chosen = [size for size in chosen if not (options.local if size.s3 else options.s3)]
            COMPARE[name](bench, [size for size in chosen if size.far or not options.far])
    print(results.table(bench.found))
    return 0


def _wanted(size: Size, files: list[int] | None) -> bool:
    return size.files in files if files else size.files <= LARGEST


@contextmanager
def _server(work: Path) -> Iterator[seaweedfs.SeaweedFS]:
    with seaweedfs.seaweedfs(work / "s3") as server:
        server.create_bucket(BUCKET)
        yield server


if __name__ == "__main__":
    sys.exit(main())
