"""How much the API may be asked: size and time of a body, requests at once, requests per second and client.

Also puts the security headers on every answer, those that no route gave included. Probes are never limited: a busy
service is not a dead one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import HTTPException
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakesweep.admin import problems

PROBES = ("/healthz", "/readyz")

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""There is deliberately no CORS header: no other site's page may read an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one process takes."""

    body_bytes: int = 64 * 1024
    """The largest body that a route takes is some hundred bytes."""
    body_seconds: float = 10
    """For the whole body to arrive."""
    at_once: int = 32
    per_second: float = 20
    """Per client address, in the long run."""
    burst: int = 100
    """Per client address, at one moment."""
    clients_remembered: int = 1000


class Guarded:
    """The app behind its limits. Pure ASGI, so that a body is counted as it arrives."""

    def __init__(self, app: ASGIApp, limits: Limits, now: Callable[[], float]) -> None:
        self._app = app
        self._limits = limits
        self._rates = _Rates(limits, now)
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_security_headers(send)
        if scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        refusal = self._refuse(scope)
        if refusal:
            status, detail, headers = refusal
            await problems.response(status, detail, headers=headers)(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, _Body(receive, self._limits), send)
        finally:
            self._running -= 1

    def _refuse(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            return 413, _too_large(self._limits), {"Connection": "close"}
        if self._running >= self._limits.at_once:
            return 429, "too many requests at once", {"Retry-After": "1"}
        wait = self._rates.take((scope.get("client") or ("", 0))[0])
        if wait:
            return 429, "too many requests of this client", {"Retry-After": str(int(wait) + 1)}
        return None


class _Rates:
    """A bucket of requests per client, filled at a steady rate. The client unseen for longest is forgotten first."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Seconds to wait; 0 lets the request through."""
        now = self._now()
        left, seen = self._clients.pop(client, (float(self._limits.burst), now))
        left = min(self._limits.burst, left + (now - seen) * self._limits.per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._limits.per_second
        self._clients[client] = (left if wait else left - 1, now)
        if len(self._clients) > self._limits.clients_remembered:
            self._clients.popitem(last=False)
        return wait


class _Body:
    """Receives a body, and gives up on one that is too long or too slow. FastAPI lets its own error through."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._limits = limits
        self._bytes = 0
        self._deadline = asyncio.get_running_loop().time() + limits.body_seconds
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # from here on this waits for the client to go away
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as exc:
            raise HTTPException(408, "the body did not arrive in time") from exc
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._bytes > self._limits.body_bytes:
                raise HTTPException(413, _too_large(self._limits))
        return message


def _too_large(limits: Limits) -> str:
    return f"a body may have {limits.body_bytes} bytes"


def _with_security_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
