"""How fast we delete on a real S3 server, and what a storm of SlowDown does: `python -m tests.bench.bench_delete`.

The same number of objects is deleted by a bare aiobotocore loop over DeleteObjects and by our deleter, in turns, with
the same requests in flight. Then the stub server, which is never the bottleneck, answers everything with 503 for some
seconds; the table shows requests and deleted keys second by second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from aiohttp import web
from tests.bench.places import S3Place
from tests.servers import s3_stub, seaweedfs

from lakesweep.ports.deleter import DeleteStatus
from lakesweep.storage.adaptive_limiter import PAGE_KEYS
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.settings import S3Options

BUCKET = "bench"
CONCURRENCY = 10
STORM_SECONDS = 5


async def raw(endpoint: str, keys: list[str]) -> int:
    """The least that a client can do: pages of a thousand, so many at a time, no retries."""
    pages = [keys[start : start + PAGE_KEYS] for start in range(0, len(keys), PAGE_KEYS)]
    slots = asyncio.Semaphore(CONCURRENCY)
    config = AioConfig(s3={"addressing_style": "path"}, max_pool_connections=CONCURRENCY)
    session = AioSession()
    async with session.create_client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config) as client:

        async def delete(page: list[str]) -> int:
            async with slots:
                objects = {"Objects": [{"Key": key} for key in page], "Quiet": True}
                answer = await client.delete_objects(Bucket=BUCKET, Delete=objects)
                return len(page) - len(answer.get("Errors", []))

        return sum(await asyncio.gather(*map(delete, pages)))


async def ours(endpoint: str, keys: list[str]) -> int:
    """Our deleter, as a sweep uses it: a call per batch, so many at a time."""
    options = S3Options(endpoint_url=endpoint, path_style=True, delete_concurrency=CONCURRENCY)
    batches = [keys[start : start + PAGE_KEYS] for start in range(0, len(keys), PAGE_KEYS)]
    slots = asyncio.Semaphore(CONCURRENCY)
    async with aclosing(S3Deleter(options)) as deleter:

        async def delete(batch: list[str]) -> int:
            async with slots:
                answers = await deleter.delete([f"s3://{BUCKET}/{key}" for key in batch])
            return sum(one.status is DeleteStatus.DELETED for one in answers)

        return sum(await asyncio.gather(*map(delete, batches)))


def compare(keys: int, rounds: int) -> None:
    """Print both, in turns on one server."""
    seconds: dict[str, list[float]] = {"raw aiobotocore": [], "ours": []}
    with tempfile.TemporaryDirectory() as folder, seaweedfs.seaweedfs(Path(folder)) as server:
        server.create_bucket(BUCKET)
        for turn in range(rounds):
            for name, client in (("raw aiobotocore", raw), ("ours", ours)):
                prefix = f"{name[:4].strip()}-{turn}"
                names = [f"part={number % 50:02d}/{number:08d}.parquet" for number in range(keys)]
                S3Place(server=server, bucket=BUCKET, prefix=prefix).make(names)
                started = time.perf_counter()
                gone = asyncio.run(client(server.endpoint_url, [f"{prefix}/{one}" for one in names]))
                seconds[name].append(time.perf_counter() - started)
                assert gone == keys, f"{name} deleted {gone} of {keys}"
    print(f"\nDeleting {keys:,} objects on SeaweedFS, {CONCURRENCY} requests in flight, best of {rounds}")
    for name, took in seconds.items():
        print(f"{name:18} {min(took):>8.2f} s {keys / min(took):>10,.0f} keys/s")
    print(f"ours / raw, keys per second: {min(seconds['raw aiobotocore']) / min(seconds['ours']):.2f}")


async def storm(keys: int) -> None:
    """Print requests and keys per second before, in and after a storm."""
    async with s3_stub.s3_stub(BUCKET) as stub:
        stub.buckets[BUCKET] = {f"t/{number:08d}": b"" for number in range(keys)}
        sent: Counter[int] = Counter()
        began: list[float] = []

        async def fault(_: s3_stub.Request) -> web.Response | None:
            began.append(time.perf_counter())
            at = began[-1] - began[0]
            sent[int(at)] += 1
            return s3_stub.error(503, "SlowDown") if 1 <= at < 1 + STORM_SECONDS else None

        stub.fault = fault
        left = {0: keys}
        work = asyncio.create_task(ours(stub.endpoint_url, list(stub.buckets[BUCKET])))
        while not work.done():
            await asyncio.sleep(0.05)
            if began:
                left[int(time.perf_counter() - began[0]) + 1] = len(stub.buckets[BUCKET])
        print(f"\nA storm of {STORM_SECONDS} s on the stub, {keys:,} keys: deleted {await work:,}")
        print(f"{'second':>8} {'requests':>9} {'keys':>9}")
        for second in sorted(left)[1:]:
            print(f"{second:>8} {sent[second - 1]:>9} {left.get(second - 1, 0) - left[second]:>9,}")


def main() -> None:
    """Compare, then the storm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=20_000, help="objects per client and round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--storm-keys", type=int, default=200_000)
    chosen = parser.parse_args()
    os.environ.update(seaweedfs.ENVIRONMENT)
    compare(chosen.keys, chosen.rounds)
    asyncio.run(storm(chosen.storm_keys))


if __name__ == "__main__":
    main()
