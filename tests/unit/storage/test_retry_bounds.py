"""However many layers try again, a store in trouble gets a bounded number of requests."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from tests.servers import s3_stub

from lakesweep.audit import trail
from lakesweep.formats.iceberg import expire
from lakesweep.model.errors import Denied, Unavailable
from lakesweep.model.location import Location
from lakesweep.retry import Backoff, doubled
from lakesweep.storage.registry import open_storage, open_writer
from lakesweep.storage.s3.settings import S3Options
from lakesweep.storage.spec import StorageSpec

PLACE = Location("s3", "lake", "t/a")
ARCHITECTURE = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()


@pytest.fixture
async def stub(s3_credentials, monkeypatch):
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _, *rest: sleep(0, *rest))
    async with s3_stub.s3_stub("lake") as server:
        server.buckets["lake"] = {f"t/{number}": b"x" for number in range(3)}
        yield server


def spec(stub, **changes) -> StorageSpec:
    options = S3Options(endpoint_url=stub.endpoint_url, path_style=True, listing_concurrency=1, **changes)
    return StorageSpec(stores=(options,))


async def test_a_read_is_tried_by_the_client_and_the_wrapper_and_nobody_else(stub):
    async def failing(_):
        return s3_stub.error(500, "InternalError")

    stub.fault = failing
    async with aclosing(open_storage(spec(stub))) as storage:
        with pytest.raises(Unavailable):
            await storage.read(PLACE)
    assert len(stub.requests) == S3Options().attempts * StorageSpec().attempts == 8


async def test_a_plain_write_is_tried_by_the_wrapper_alone(stub):
    async def failing(_):
        return s3_stub.error(500, "InternalError")

    stub.fault = failing
    async with aclosing(open_writer(spec(stub))) as writer:
        with pytest.raises(Unavailable):
            await writer.put(PLACE, b"x", create_only=False)
        assert len(stub.requests) == StorageSpec().attempts
        with pytest.raises(Unavailable):
            await writer.put(PLACE, b"x", create_only=True)
    assert len(stub.requests) == StorageSpec().attempts + 1


def broken_off() -> web.Response:
    answer = web.Response(body=b"<ListBucketResult>", headers={"Content-Length": "4096", "Connection": "close"})
    answer.force_close()
    return answer


@pytest.mark.parametrize("pages_before", [0, 1])
async def test_a_page_that_breaks_off_is_asked_for_again_by_the_client(stub, pages_before):
    async def broken(_):
        return None if len(stub.requests) <= pages_before else broken_off()

    stub.fault = broken
    async with aclosing(open_storage(spec(stub, page_size=1))) as storage:
        with pytest.raises(Unavailable):
            [batch async for batch in storage.list(Location("s3", "lake", "t"))]
    # A listing that has handed out rows does not start over.
    from_the_start = 1 if pages_before else StorageSpec().attempts
    assert len(stub.requests) == pages_before + S3Options().attempts * from_the_start


async def test_a_listing_of_which_every_third_page_breaks_off_is_complete(stub):
    stub.buckets["lake"] = {f"t/{number:02}": b"" for number in range(30)}

    async def broken(_):
        return broken_off() if len(stub.requests) % 3 == 0 else None

    stub.fault = broken
    async with aclosing(open_storage(spec(stub, page_size=3))) as storage:
        batches = [batch async for batch in storage.list(Location("s3", "lake", "t"))]
    assert sum(batch.num_rows for batch in batches) == 30


async def test_only_what_may_pass_is_tried_again():
    tried = 0

    async def denied() -> None:
        nonlocal tried
        tried += 1
        raise Denied("s3://lake", "no")

    with pytest.raises(Denied):
        await Backoff(5).call(denied)
    assert tried == 1


def test_a_wait_doubles_up_to_the_longest_however_often_it_failed():
    assert [doubled(failures, 0.2, 1.0) for failures in (1, 2, 3, 4, 10**6)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    hour = timedelta(hours=1)
    assert [doubled(failures, hour / 4, hour) for failures in (1, 2, 3, 10**6)] == [hour / 4, hour / 2, hour, hour]


def test_the_page_about_tries_has_the_numbers_of_the_program():
    client, wrapper = S3Options().attempts, StorageSpec().attempts
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| \**(\d+)\** \|", ARCHITECTURE, re.M)
    assert {what: int(most) for what, most in rows} == {
        "a read, a stat": client * wrapper,
        "the first page of a listing": client * wrapper,
        "a later page": client,
        "a plain overwrite": wrapper,
        "a create-only write": 1,
        "a segment of the audit trail": trail.ATTEMPTS,
        "a delete, each key": client,
        "an Iceberg commit": expire.RETRIES + 1,
        "a Paimon commit": 11,
        "a call to a catalog": 1,
        "a transaction of the state store": 1,
    }
