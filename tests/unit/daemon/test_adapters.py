"""What settings become: here, how hard a tenant's store may be worked by deletes, and what of our own may go."""

import asyncio
from contextlib import aclosing, suppress
from types import SimpleNamespace

import pytest
from tests.builders.cycles import SetClock
from tests.servers import s3_stub

from lakesweep.daemon.adapters import Adapters
from lakesweep.model.location import Location
from lakesweep.settings.schema import Settings
from lakesweep.storage.s3.settings import S3Options

HOME = Location.parse("s3://lake/t/")
KEYS = [f"s3://lake/t/{number:05d}" for number in range(6000)]


class Watch:
    """How many requests were under way at most; SlowDown for more than `most`. The first are held until so many are
    there `together`, or never will be: a busy machine would not let them meet by chance."""

    def __init__(self, most: int = 100, together: int = 1) -> None:
        self.most, self.running, self.seen = most, 0, []
        self._together, self._met = together, asyncio.Event()

    async def __call__(self, _request):
        self.running += 1
        self.seen.append(self.running)
        if self.running >= self._together:
            self._met.set()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._met.wait(), timeout=10)
            await asyncio.sleep(0.002)
            return s3_stub.error(503, "SlowDown") if self.running > self.most else None
        finally:
            self.running -= 1


@pytest.fixture
async def stub(s3_credentials):
    async with s3_stub.s3_stub("lake") as server:
        yield server


@pytest.fixture
async def adapters(stub, tmp_path):
    settings = Settings.model_validate(
        {
            "service": {"data_dir": str(tmp_path), "artifacts": "s3://lake/ops"},
            "storage": {"s3": {"endpoint_url": stub.endpoint_url, "path_style": True}},
        }
    )
    async with aclosing(Adapters(settings, SetClock(None))) as opened:
        yield opened


def deleter(adapters, tenant, concurrency):
    return aclosing(adapters.deleter(tenant, HOME, SimpleNamespace(roots=(HOME,)), concurrency, lambda _: None))


async def sweep(adapters, tenant, concurrency):
    batches = [KEYS[start : start + 1000] for start in range(0, len(KEYS), 1000)]
    async with deleter(adapters, tenant, concurrency) as opened:
        await asyncio.gather(*map(opened.delete, batches))


async def test_the_settings_say_how_a_listing_is_divided(adapters):
    assert adapters._storage_spec("").options(S3Options).listing_concurrency == 16
    settings = Settings.model_validate(
        {
            "storage": {"s3": {"listing_concurrency": 3}},
            "tenants": [{"id": "acme", "root": "s3://lake/a", "storage": {"s3": {"listing_concurrency": 1}}}],
        }
    )
    others = Adapters(settings, adapters._clock)
    assert [others._storage_spec(tenant).options(S3Options).listing_concurrency for tenant in ("", "acme")] == [3, 1]


async def test_a_table_deletes_with_as_many_requests_as_its_policy_says(adapters, stub):
    for concurrency in (2, 5):
        stub.fault = watch = Watch(together=concurrency)
        await sweep(adapters, "acme", concurrency)
        assert max(watch.seen) == concurrency


async def test_a_tenants_pace_carries_over_and_is_its_own(adapters, stub):
    stub.fault = watch = Watch(most=1)
    await sweep(adapters, "acme", 6)
    watch.most, watch.seen = 100, []
    await sweep(adapters, "acme", 6)
    assert max(watch.seen[:5]) <= 3
    stub.fault = watch = Watch(together=6)
    await sweep(adapters, "other", 6)
    assert max(watch.seen) == 6


async def test_only_published_copies_of_our_own_are_discarded(adapters, stub, tmp_path):
    """Whatever address the state store holds: the gate stands behind the look at it."""
    artifacts = adapters.artifacts()
    plan = artifacts.file("plans", "r1.parquet")
    plan.parent.mkdir(parents=True)
    plan.write_bytes(b"rows")
    address = await artifacts.publish(plan)
    objects = stub.buckets["lake"]
    outside = {"t/1/0": b"live", "ops-of-others/plans/1/0": b"theirs", "ops": b"a file by that name"}
    objects.update(outside)
    for place in ("s3://lake/t/1", "s3://lake/ops-of-others/plans/1", "s3://lake/ops/../t/1", "s3a://else/ops/1"):
        await artifacts.discard(place)
    for key in (*outside, "ops/", "ops/../t/1/0", "ops/./plans"):
        await artifacts._discard([f"{address}/0", f"s3://lake/{key}"])
    assert objects == {**outside, "ops/plans/r1.parquet/1/0": b"rows"}
    assert stub.count("delete") == stub.count("delete_page") == 0
    await artifacts.discard(address)
    assert objects == outside
