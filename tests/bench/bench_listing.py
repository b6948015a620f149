"""How fast we list, against others on the same machine: `python -m tests.bench.bench_listing`.

S3: our client, the stock aiobotocore paginator (fewer keys: it is slow) and Rust's obstore, each in a process of
its own, from a server that has the pages ready; then ours against a server that takes its time, with all keys in one
flat prefix and in folders. Trust the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from tests.bench import listing_server
from tests.bench.listing_server import Shape
from tests.servers.seaweedfs import ENVIRONMENT

from lakesweep.model.location import Location
from lakesweep.storage.s3.settings import S3Options
from lakesweep.storage.s3.store import S3Storage

List = Callable[[str], Awaitable[int]]
DELAY_SECONDS = 0.1
ROOT = Location("s3", listing_server.BUCKET, listing_server.PREFIX)


async def ours(endpoint: str, concurrency: int = 16) -> int:
    """Our S3Storage, as the service uses it."""
    storage = S3Storage(S3Options(endpoint_url=endpoint, path_style=True, listing_concurrency=concurrency))
    try:
        return sum([batch.num_rows async for batch in storage.list(ROOT)])
    finally:
        await storage.aclose()


async def ours_one_stream(endpoint: str) -> int:
    """The same, one request at a time."""
    return await ours(endpoint, concurrency=1)


async def stock(endpoint: str) -> int:
    """What aiobotocore's own paginator gives: dicts, parsed by its own parser."""
    config = AioConfig(s3={"addressing_style": "path"})
    keys = 0
    async with AioSession().create_client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", config=config
    ) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=ROOT.authority, Prefix=ROOT.path)
        async for page in pages:
            keys += sum(
                1 for entry in page["Contents"] if entry["Key"] and entry["Size"] >= 0 and entry["LastModified"]
            )
    return keys


async def obstore(endpoint: str) -> int:
    """Rust's object_store, in its fastest form: Arrow batches."""
    from obstore.store import S3Store  # noqa: PLC0415  # its import is not what the others are measured with

    store = S3Store(ROOT.authority, endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
    return sum([batch.num_rows async for batch in store.list(ROOT.path, return_arrow=True, chunk_size=1000)])


CLIENTS: dict[str, List] = {"ours": ours, "ours, one stream": ours_one_stream, "stock": stock, "obstore": obstore}


def measure(name: str, endpoint: str) -> dict[str, float]:
    """One listing in this process: keys, CPU of all threads, wall time, peak memory."""
    wall, cpu = time.perf_counter(), time.process_time()
    keys = asyncio.run(CLIENTS[name](endpoint))
    return {
        "keys": keys,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_apart(name: str, endpoint: str) -> dict[str, float]:
    """The same in a fresh process, so that no client pays for another's garbage."""
    command = [sys.executable, "-m", "tests.bench.bench_listing", "--client", name, "--endpoint", endpoint]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def compare_s3(pages: int, stock_pages: int) -> None:
    """Print the table of S3 clients."""
    results = {}
    for name in CLIENTS:
        with listing_server.running(Shape(pages=stock_pages if name == "stock" else pages)) as endpoint:
            results[name] = measure_apart(name, endpoint)
    print(f"\nS3 listing, {pages * listing_server.KEYS_PER_PAGE:,} keys from a server with ready pages")
    print(f"{'client':18} {'keys':>10} {'CPU s':>8} {'keys/CPU-s':>12} {'wall s':>8} {'MB':>6} {'x stock':>8}")
    base = results["stock"]["keys"] / results["stock"]["cpu"]
    for name, got in results.items():
        rate = got["keys"] / got["cpu"]
        print(
            f"{name:18} {got['keys']:>10,} {got['cpu']:>8.2f} {rate:>12,.0f} {got['wall']:>8.2f} "
            f"{got['memory']:>6.0f} {rate / base:>8.1f}"
        )
    ratio = results["ours"]["keys"] / results["ours"]["cpu"] * results["obstore"]["cpu"] / results["obstore"]["keys"]
    print(f"ours / obstore, keys per CPU-second: {ratio:.2f}")


def compare_shapes(pages: int) -> None:
    """Print how long a far-away store is listed, flat and in folders."""
    keys = pages * listing_server.KEYS_PER_PAGE
    print(f"\nS3 listing, {keys:,} keys, every answer takes {DELAY_SECONDS * 1000:.0f} ms")
    for name, client, folders in (
        ("one stream", "ours, one stream", 0),
        ("one flat prefix", "ours", 0),
        ("4 folders", "ours", 4),
        ("16 folders", "ours", 16),
        ("100 folders", "ours", 100),
    ):
        with listing_server.running(Shape(pages=pages, folders=folders, delay_seconds=DELAY_SECONDS)) as endpoint:
            got = measure_apart(client, endpoint)
        assert got["keys"] == keys, got
        print(f"{name:18} {got['wall']:>8.2f} s {got['keys'] / got['wall']:>12,.0f} keys/s {got['cpu']:>8.2f} CPU s")


def main() -> None:
    """Compare, or measure one client when called by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1000, help="pages of 1000 keys")
    parser.add_argument("--stock-pages", type=int, default=40, help="pages for the stock client")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        print(json.dumps(measure(chosen.client, chosen.endpoint)), flush=True)
        os._exit(0)  # obstore's threads now and then abort an orderly end
    compare_s3(chosen.pages, chosen.stock_pages)
    compare_shapes(chosen.pages * 3 // 10)


if __name__ == "__main__":
    main()
