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
from lakesweep.cleanup import mark, revalidate
from lakesweep.formats.delta import load, uniform
from lakesweep.formats.iceberg import expire
from lakesweep.formats.iceberg import table as iceberg_table
from lakesweep.formats.paimon import commit
from lakesweep.formats.paimon import view as paimon_view
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


CLIENT, WRAPPER = S3Options().attempts, StorageSpec().attempts


def failed():
    return s3_stub.error(500, "InternalError")


def broken_off(body=b"<ListBucketResult>"):
    answer = web.Response(body=body, headers={"Content-Length": "4096", "Connection": "close"})
    answer.force_close()
    return answer


def of_a_proxy():
    return web.Response(status=404, text="default backend - 404")


async def listed(storage):
    return [batch async for batch in storage.list(Location("s3", "lake", "t"))]


CALLS = {"read": lambda storage: storage.read(PLACE), "stat": lambda storage: storage.stat(PLACE), "list": listed}


async def requests_of(stub, call, answers):
    """How many a call makes before it fails, if these answers come in turn."""

    async def fault(_):
        return answers[(len(stub.requests) - 1) % len(answers)]()

    stub.fault = fault
    async with aclosing(open_storage(spec(stub))) as storage:
        with pytest.raises(Unavailable):
            await CALLS[call](storage)
    return len(stub.requests)


@pytest.mark.parametrize("call", CALLS)
async def test_what_the_client_tries_again_nobody_else_does(stub, call):
    assert await requests_of(stub, call, [failed]) == CLIENT


async def test_a_store_that_does_not_answer_is_asked_by_the_client_alone(stub):
    released = asyncio.Event()

    async def hang(_):
        await released.wait()

    stub.fault = hang
    async with aclosing(open_storage(spec(stub, read_timeout_seconds=0.1))) as storage:
        with pytest.raises(Unavailable):
            await storage.read(PLACE)
    released.set()
    assert len(stub.requests) == CLIENT


@pytest.mark.parametrize(("call", "answer"), [("read", broken_off), ("read", of_a_proxy), ("list", of_a_proxy)])
async def test_what_the_client_does_not_try_again_the_wrapper_does(stub, call, answer):
    assert await requests_of(stub, call, [answer]) == WRAPPER


async def test_a_read_that_fails_in_both_ways_is_bounded_too(stub):
    assert await requests_of(stub, "read", [*[failed] * (CLIENT - 1), broken_off]) == CLIENT * WRAPPER == 10


async def test_a_plain_write_is_tried_by_the_wrapper_alone(stub):
    async def failing(_):
        return failed()

    stub.fault = failing
    async with aclosing(open_writer(spec(stub))) as writer:
        with pytest.raises(Unavailable):
            await writer.put(PLACE, b"x", create_only=False)
        assert len(stub.requests) == WRAPPER
        with pytest.raises(Unavailable):
            await writer.put(PLACE, b"x", create_only=True)
    assert len(stub.requests) == WRAPPER + 1


@pytest.mark.parametrize("pages_before", [0, 1])
async def test_a_page_that_breaks_off_is_asked_for_again_by_the_client(stub, pages_before):
    async def broken(_):
        return None if len(stub.requests) <= pages_before else broken_off()

    stub.fault = broken
    async with aclosing(open_storage(spec(stub, page_size=1))) as storage:
        with pytest.raises(Unavailable):
            await listed(storage)
    assert len(stub.requests) == pages_before + CLIENT


async def test_a_listing_of_which_every_third_page_breaks_off_is_complete(stub):
    stub.buckets["lake"] = {f"t/{number:02}": b"" for number in range(30)}

    async def broken(_):
        return broken_off() if len(stub.requests) % 3 == 0 else None

    stub.fault = broken
    async with aclosing(open_storage(spec(stub, page_size=3))) as storage:
        assert sum(batch.num_rows for batch in await listed(storage)) == 30


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
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| \**(\d+)\** \|", ARCHITECTURE, re.M)
    assert {what: int(most) for what, most in rows} == {
        "a read, a stat, a page of a listing": CLIENT,
        "the same, where the S3 client does not try again": WRAPPER,
        "both in one read": CLIENT * WRAPPER,
        "a plain overwrite": WRAPPER,
        "a create-only write": 1,
        "a segment of the audit trail": trail.ATTEMPTS,
        "a delete, each key": CLIENT,
        "an Iceberg commit": expire.RETRIES + 1,
        "a Paimon commit": 11,
        "a call to a catalog": 1,
        "a transaction of the state store": 1,
        "a webhook message": 33,  # tests/unit/daemon/test_notifier.py counts them
        "an Iceberg table's metadata": iceberg_table._LOAD_ATTEMPTS,
        "a Delta table's log": load._ATTEMPTS,
        "Iceberg metadata beside a Delta log": uniform._ATTEMPTS,
        "a Paimon table's head, snapshots or references": paimon_view.LOOKS,
        "the hint of a Paimon commit": commit._HINT_WRITES,
        "a table and its references, while it is marked": mark._ATTEMPTS,
        "new references before a batch is deleted": revalidate._LOOKS,
        "everything, to find orphans": 2,
    }
