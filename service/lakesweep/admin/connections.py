"""How long a connection may take, and how many there may be. Holds for both ports.

A client that sends its headers byte by byte, never finishes a request or never reads the answer would keep a
connection for ever; a thousand of them would use up the process's file descriptors. So a connection has a deadline for
its headers and one for the whole request, and there is a limit on connections. At the limit the connection that has
waited longest for its headers is closed, so that a client that speaks at once still gets in.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEADER_SECONDS = 10.0
"""For the headers of a request to arrive, counted from the connection or the end of the answer before."""
REQUEST_SECONDS = 60.0
"""From the headers to the end of the answer. No request of this API takes seconds."""
MAX_CONNECTIONS = 256
"""Of one port."""


def max_connections() -> int:
    """The limit of one port: never more than a quarter of the file descriptors that the process may have."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(MAX_CONNECTIONS, descriptors // 4))


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with deadlines and a limit on connections."""

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
        """The deadline goes with the connection."""
        self._end_at(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Once the headers are there the request as a whole has its own deadline."""
        super().handle_events()
        if self.waiting_since is not None and self.cycle is not None and not self.cycle.response_complete:
            self.waiting_since = None
            self._end_at(self.request_seconds)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
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
