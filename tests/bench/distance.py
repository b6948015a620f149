"""Distance: a TCP relay on loopback that hands every answer on a fixed time later.

A store on this machine answers within a millisecond; a real one takes 20 to 200. Requests pass at once, so a round
trip takes the whole delay once. A new connection takes one round trip more, as a TCP handshake does. The relay changes
no byte and reads no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

from tests.bench.own_process import serving

_AHEAD_BYTES = 16 * 2**20
"""What a connection may hold back before it stops reading: more than any answer of a listing."""


@dataclass(frozen=True, kw_only=True)
class _Link:
    port: int
    delay_seconds: float


class _Near(asyncio.Protocol):
    """The client's end of a connection."""

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._waiting: list[bytes] = []
        self._far: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._task = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._link.delay_seconds)
        try:
            self._far, _ = await loop.create_connection(
                lambda: _Far(self._transport, self._link.delay_seconds), "127.0.0.1", self._link.port
            )
        except OSError:
            self._transport.abort()
        else:
            self._far.writelines(self._waiting)
            if self._transport.is_closing():
                self._far.close()

    def data_received(self, data: bytes) -> None:
        if self._far is None:
            self._waiting.append(data)
        else:
            self._far.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._far is not None:
            self._far.close()


class _Far(asyncio.Protocol):
    """The server's end: what it says arrives later, in the order in which it was said."""

    def __init__(self, near: asyncio.Transport, delay_seconds: float) -> None:
        self._near = near
        self._delay = delay_seconds
        self._held: deque[bytes] = deque()
        self._held_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _AHEAD_BYTES:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_later(self._delay, self._hand_on)

    def _hand_on(self) -> None:
        data = self._held.popleft()
        self._held_bytes -= len(data)
        self._transport.resume_reading()
        self._near.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._delay, self._near.close)


async def _relay(link: _Link, ready: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Near(link), "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _serve(link: _Link, ready: Connection) -> None:
    asyncio.run(_relay(link, ready))


@contextmanager
def away(endpoint_url: str, delay_seconds: float) -> Iterator[str]:
    """The same server at another address, so much farther away."""
    port = urlsplit(endpoint_url).port
    assert port is not None
    with serving(_serve, _Link(port=port, delay_seconds=delay_seconds)) as relay:
        yield f"http://127.0.0.1:{relay}"
