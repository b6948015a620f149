"""All benchmarks, one after the other: `make bench`. Trust the ratios, not the seconds."""

from __future__ import annotations

import subprocess
import sys

BENCHES = (
    ("Listing: ours, stock aiobotocore, obstore; our local walk and find", ["tests.bench.bench_listing"]),
    (
        "Planning an Iceberg table of a million files in-process, cold and with a digest cache",
        ["tests.bench.synthetic", "--files", "1000000", "--cached"],
    ),
)


def main() -> int:
    failed = 0
    for title, arguments in BENCHES:
        print(f"\n=== {title}\n", flush=True)
        failed |= subprocess.run([sys.executable, "-m", *arguments], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
