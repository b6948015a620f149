"""Serving inside a running event loop."""

import signal

import httpx
import pytest
from tests.builders.admin import SmallService

from lakesweep.admin.server import serving
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


async def test_a_port_that_is_taken_is_told_by_its_setting(app):
    async with serving(app, "127.0.0.1:0") as address:
        with pytest.raises(SettingsError, match=rf"admin\.listen: cannot listen on {address}: .*in use"):
            async with serving(app, address):
                pass


async def test_an_address_that_is_not_ours_is_told(app):
    with pytest.raises(SettingsError, match=r"metrics\.listen: cannot listen on 192\.0\.2\.1:1"):
        async with serving(app, "192.0.2.1:1", setting="metrics.listen"):
            pass


async def test_signals_are_left_to_the_daemon(app):
    before = signal.getsignal(signal.SIGTERM)
    async with serving(app, "127.0.0.1:0") as address, httpx.AsyncClient() as client:
        await client.get(f"http://{address}/healthz")
        assert signal.getsignal(signal.SIGTERM) is before
