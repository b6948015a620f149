"""Serving inside a running event loop."""

import asyncio
import signal

import httpx
import pytest
from tests.builders.admin import SmallService

from lakesweep.admin import server
from lakesweep.admin.server import BoundedProtocol, serving
from lakesweep.model.errors import SettingsError


@pytest.fixture
def app(tmp_path):
    return SmallService(tmp_path).app()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0"])
async def test_an_app_is_served_while_the_context_is_open(app, listen):
    async with serving(app, listen) as address, httpx.AsyncClient(base_url=f"http://{address}") as client:
        answer = await client.get("/healthz")
        assert answer.status_code == 200
        assert "server" not in answer.headers
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/healthz")


async def test_a_port_that_is_taken_is_reported_by_its_setting(app):
    async with serving(app, "127.0.0.1:0") as address:
        with pytest.raises(SettingsError, match=rf"admin\.listen: cannot listen on {address}: .*in use"):
            async with serving(app, address):
                pass


async def test_an_address_that_is_not_ours_is_reported(app):
    with pytest.raises(SettingsError, match=r"metrics\.listen: cannot listen on 192\.0\.2\.1:1"):
        async with serving(app, "192.0.2.1:1", setting="metrics.listen"):
            pass


async def test_signals_are_left_to_the_daemon(app):
    before = signal.getsignal(signal.SIGTERM)
    async with serving(app, "127.0.0.1:0") as address, httpx.AsyncClient() as client:
        await client.get(f"http://{address}/healthz")
        assert signal.getsignal(signal.SIGTERM) is before


async def opened(address):
    host, port = address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"GET /he"])
async def test_headers_that_do_not_come_are_not_waited_for(app, monkeypatch, sent):
    monkeypatch.setattr(BoundedProtocol, "header_seconds", 0.05)
    async with serving(app, "127.0.0.1:0") as address:
        reader, writer = await opened(address)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_a_body_that_nobody_reads_does_not_keep_a_connection(app, monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "header_seconds", 0.05)
    async with serving(app, "127.0.0.1:0") as address:
        reader, writer = await opened(address)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_request_that_takes_too_long_is_cut_off(monkeypatch):
    async def never(scope, receive, send):
        await asyncio.sleep(3600)

    monkeypatch.setattr(BoundedProtocol, "request_seconds", 0.05)
    async with serving(never, "127.0.0.1:0") as address:
        reader, writer = await opened(address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_half_open_connections_make_room_for_one_that_speaks(app, monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)
    async with serving(app, "127.0.0.1:0") as address:
        half_open = [await opened(address) for _ in range(120)]
        async with httpx.AsyncClient(base_url=f"http://{address}") as client:
            assert (await client.get("/healthz")).status_code == 200
        closed = sum(reader.at_eof() for reader, _ in half_open)
        assert closed >= 100
        for _, writer in half_open:
            writer.close()


def test_the_limit_leaves_most_file_descriptors_to_the_work(monkeypatch):
    monkeypatch.setattr(server.resource, "getrlimit", lambda _: (100, 100))
    assert server.max_connections() == 25
