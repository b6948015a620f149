"""How much the API may be asked."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.admin import ORDERS, SmallService

from lakesweep.admin.limits import Limits, _Rates


@pytest.fixture
async def service(tmp_path):
    service = SmallService(tmp_path)
    await service.seed()
    return service


async def test_a_body_that_says_it_is_too_long_is_not_read(service):
    async with service.client(limits=Limits(body_bytes=100)) as client:
        answer = await client.post("/api/v1/runs", content=b"x" * 101, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_body_that_does_not_say_how_long_it_is_is_counted(service):
    async def pieces():
        for _ in range(20):
            yield b" " * 10

    async with service.client(limits=Limits(body_bytes=100)) as client:
        answer = await client.post("/api/v1/runs", content=pieces(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (413, "the request body may have at most 100 bytes")
    assert service.asked == []


async def test_a_length_that_is_no_number_is_refused(service):
    async with service.client() as client:
        answer = await client.post("/api/v1/runs", content=b"{}", headers={"Content-Length": "-1"})
    assert answer.status_code == 413


async def test_a_body_that_does_not_come_is_not_waited_for(service):
    async def never():
        yield b'{"target"'
        await asyncio.sleep(3600)

    async with service.client(limits=Limits(body_seconds=0.05)) as client:
        answer = await client.post("/api/v1/runs", content=never(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 408


async def test_a_client_that_asks_too_often_has_to_wait(service):
    async with service.client(limits=Limits(burst=3, per_second=0.1)) as client:
        statuses = [(await client.get("/api/v1/runs")).status_code for _ in range(4)]
        answer = await client.get("/api/v1/runs")
        assert statuses == [200, 200, 200, 429]
        assert int(answer.headers["retry-after"]) in (10, 11)
        assert (await client.get("/healthz")).status_code == 200


async def test_only_so_many_requests_are_served_at_once(service):
    going, gate = asyncio.Event(), asyncio.Event()
    inner = service.runs

    async def slow(**filters):
        going.set()
        await gate.wait()
        return await inner(**filters)

    service.runs = slow
    async with service.client(limits=Limits(at_once=1)) as client:
        first = asyncio.create_task(client.get("/api/v1/runs"))
        await going.wait()
        refused = await client.post("/api/v1/runs", json={"target": ORDERS.label})
        gate.set()
        assert (refused.status_code, (await first).status_code) == (429, 200)
        assert (await client.get("/api/v1/runs")).status_code == 200


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5)), max_size=60))
def test_no_client_gets_more_than_its_burst_and_rate(requests):
    now = 0.0
    rates = _Rates(Limits(burst=5, per_second=2), lambda: now)
    let_through = dict.fromkeys("abc", 0)
    for client, pause in requests:
        now += pause
        let_through[client] += rates.take(client) == 0
        assert let_through[client] <= 5 + 2 * now + 1e-6


def test_only_so_many_clients_are_remembered():
    rates = _Rates(Limits(clients_remembered=10), lambda: 0.0)
    for number in range(1000):
        assert rates.take(str(number)) == 0
    assert len(rates._clients) == 10


async def test_a_stranger_gets_an_answer_before_its_body_is_read(service):
    asked_for = []

    async def slow():
        asked_for.append("body")
        yield b"{"
        await asyncio.sleep(3600)

    await service.token()
    async with service.client(limits=Limits(body_seconds=3600)) as client:
        answer = await client.post("/api/v1/runs", content=slow(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["connection"], asked_for) == (401, "close", [])


async def test_slow_bodies_of_a_token_take_no_place_from_another(service):
    slow_one, other = await service.token(), await service.token()
    arriving = asyncio.Semaphore(0)

    async def never():
        yield b"{"
        arriving.release()
        await asyncio.sleep(3600)

    async with service.client(limits=Limits(at_once=2, bodies_at_once=3, body_seconds=3600)) as client:

        def post(body):
            return client.post("/api/v1/runs", content=body, headers={"Authorization": f"Bearer {slow_one}"})

        slow = [asyncio.create_task(post(never())) for _ in range(3)]
        for _ in slow:
            await arriving.acquire()
        more = await post(b"{}")
        answer = await client.get("/api/v1/runs", headers={"Authorization": f"Bearer {other}"})
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert (more.status_code, answer.status_code) == (429, 200)


async def test_strangers_use_up_nothing_of_a_token_from_their_address(service):
    token = await service.token()
    async with service.client(limits=Limits(burst=3, per_second=0.001)) as client:
        known = {"Authorization": f"Bearer {token}"}
        assert (await client.get("/api/v1/runs", headers=known)).status_code == 200
        strangers = [(await client.get("/api/v1/runs")).status_code for _ in range(5)]
        assert (await client.get("/api/v1/runs", headers=known)).status_code == 200
    assert strangers == [401, 401, 429, 429, 429]


async def test_a_revoked_token_is_a_stranger_again(service):
    token = await service.token()
    async with service.client(token, limits=Limits(burst=2, per_second=0.001)) as client:
        assert (await client.get("/api/v1/runs")).status_code == 200
        await service.state.revoke_token(token.split("_")[1], service.clock.now())
        statuses = [(await client.get("/api/v1/runs")).status_code for _ in range(3)]
    assert statuses == [401, 401, 429]
