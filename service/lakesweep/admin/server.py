"""Serve an app inside a running event loop. Signals belong to the daemon: nothing here listens to one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from lakesweep.admin.connections import BoundedProtocol
from lakesweep.model.errors import SettingsError

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
        """Leave them alone."""
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
