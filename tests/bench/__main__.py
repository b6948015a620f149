"""All benchmarks, one after the other: `make bench`; a few minutes of them with `--short`. Trust the ratios."""

from __future__ import annotations

import argparse
import subprocess
import sys

PEERS = "Against the tools people use today: Iceberg's procedures, Delta's vacuum, deltalake, Paimon's orphan clean"
SHORT = ((PEERS, ["tests.bench.bench_peers", "--short"]),)
FULL = (
    (PEERS, ["tests.bench.bench_peers", "--docs", "docs"]),
    ("Listing: ours, stock aiobotocore, obstore; one flat prefix and many", ["tests.bench.bench_listing"]),
    ("Walking a local tree: ours and find", ["tests.bench.bench_walk"]),
    ("Walking a local tree: compiled and plain Python", ["tests.bench.bench_walk", "--plain"]),
    ("Decoding manifests: ours and fastavro", ["tests.bench.bench_decode"]),
    ("Decoding manifests: compiled and plain Python", ["tests.bench.bench_decode", "--plain"]),
    ("Removing local files: compiled and plain Python", ["tests.bench.bench_unlink"]),
    ("Deleting: ours and a bare client, and a storm of SlowDown", ["tests.bench.bench_delete"]),
    ("A sweep without its deleting: gate, audit trail, journal", ["tests.bench.bench_sweep"]),
    ("A first cycle and the next one: what the digest cache saves", ["tests.bench.bench_cache"]),
    ("A fleet of 10,000 idle tables: what waiting for them costs", ["tests.bench.bench_idle_fleet"]),
    (
        "Planning an Iceberg table of a million files in-process, cold and with a digest cache",
        ["tests.bench.synthetic", "--files", "1000000", "--cached"],
    ),
    ("Planning a million files in-process and on Spark", ["tests.bench.bench_engines", "--files", "1000000"]),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="small tables only, and nothing written into docs")
    failed = 0
    for title, arguments in SHORT if parser.parse_args().short else FULL:
        print(f"\n=== {title}\n", flush=True)
        failed |= subprocess.run([sys.executable, "-m", *arguments], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
