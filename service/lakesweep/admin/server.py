"""Serve an app inside a running event loop. Signals belong to the daemon: nothing here listens to one."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from lakesweep.model.errors import SettingsError

HEADER_SECONDS = 10.0
"""For the headers of a request to arrive, counted from the connection or the end of the answer before."""
REQUEST_SECONDS = 60.0
"""From the headers to the end of the answer. No request of this API takes seconds."""
MAX_CONNECTIONS = 256
"""Of one port."""
_GRACE_SECONDS = 3
"""For requests that are under way at the end; none takes long."""


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listen: str, *, setting: str = "admin.listen") -> AsyncIterator[str]:
    """Serve while the context is open; gives the address in use. SettingsError if nothing can listen there."""
    bound = _bind(listen, setting)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=BoundedProtocol,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([bound]), name=setting)
    try:
        host, port = bound.getsockname()[:2]
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    finally:
        server.should_exit = True
        await task
        bound.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(listen: str, setting: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        bound = socket.create_server(address[:2], family=family, backlog=128)
    except OSError as exc:
        # Python adds the address once more, in brackets.
        why = (exc.strerror or str(exc)).partition(" (while attempting")[0]
        raise SettingsError(f"{setting}: cannot listen on {listen}: {why}") from exc
    bound.setblocking(False)
    return bound


def max_connections() -> int:
    """The limit of one port: never more than a quarter of the file descriptors that the process may have."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(MAX_CONNECTIONS, descriptors // 4))


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with deadlines and a limit on connections. Holds for both ports.

    A client that sends its headers byte by byte, never finishes a request or never reads the answer would keep a
    connection for ever; a thousand of them would use up the process's file descriptors. So a connection has a deadline
    for its headers and one for the whole request, and there is a limit on connections. At the limit the connection
    that has waited longest for its headers is closed, so that a client that speaks at once still gets in.
    """

    header_seconds = HEADER_SECONDS
    request_seconds = REQUEST_SECONDS

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.waiting_since: float | None = None
        """Since when it waits for headers, by the event loop's clock; None while a request is under way."""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Make room for it if there are too many, and begin to wait for its headers."""
        if len(self.connections) >= max_connections():
            self._make_room()
        super().connection_made(transport)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_at(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Once the headers are there the request as a whole has its own deadline."""
        super().handle_events()
        if self.waiting_since is not None and self.cycle is not None and not self.cycle.response_complete:
            self.waiting_since = None
            self._end_at(self.request_seconds)

    def on_response_complete(self) -> None:
        self._wait_for_headers()
        super().on_response_complete()

    def _wait_for_headers(self) -> None:
        self.waiting_since = self.loop.time()
        self._end_at(self.header_seconds)

    def _end_at(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.abort) if seconds is not None else None

    def abort(self) -> None:
        """Close it at once, without an answer."""
        if self.transport is not None:
            self.transport.abort()

    def _make_room(self) -> None:
        waiting = {
            one.waiting_since: one
            for one in self.connections
            if isinstance(one, BoundedProtocol) and one.waiting_since is not None
        }
        if waiting:
            oldest = waiting[min(waiting)]
            self.connections.discard(oldest)
            oldest.abort()
