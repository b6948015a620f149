"""Limits of the API: size and time of a body, requests at once, requests per second and client.

The caller is authenticated before a body is read: a stranger gets an answer, never a slot. Requests of a valid token
are counted by token, all others by address, so that strangers cannot use up what a token may ask. A request takes one
of the slots only when its body is complete.

Also puts the security headers on every answer, those that no route gave included. Probes are never limited: a busy
service is not a dead one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import HTTPException
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakesweep.admin import problems
from lakesweep.admin.auth import Gatekeeper, NotLocal, Unauthorized
from lakesweep.model.access import Principal
from lakesweep.model.errors import LakesweepError

PROBES = ("/healthz", "/readyz")
MODULES = ("dashboard", "actions", "api", "charts", "dom", "overview", "run", "table")
PAGES = ("/", "/dashboard.css", "/icon.svg", *(f"/{name}.js" for name in MODULES))
"""The files of the dashboard."""
OPEN_PATHS = (*PAGES, "/api/openapi.json")
"""What anybody may read: the same bytes for everybody. Everything else needs a principal."""
PRINCIPAL = "lakesweep.principal"
"""Where a request's scope keeps who sent it."""

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
    bodies_at_once: int = 8
    """Of one token, bodies that are still arriving."""
    at_once: int = 32
    """Requests whose body has arrived and that are being answered."""
    per_second: float = 20
    """Per token, or per address of clients without a valid one, in the long run."""
    burst: int = 100
    """The same, at one moment."""
    clients_remembered: int = 1000


class Guarded:
    """The app behind its limits. Pure ASGI, so that nothing of a body is read before its sender is known."""

    def __init__(self, app: ASGIApp, limits: Limits, gatekeeper: Gatekeeper, now: Callable[[], float]) -> None:
        self._app = app
        self._limits = limits
        self._gatekeeper = gatekeeper
        self._rates = _Rates(limits, now)
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        """Digests of credentials that were valid lately. Their requests are not counted by address."""
        self._arriving: Counter[str] = Counter()
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_security_headers(send)
        if scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._admit(scope)
            body = await self._arrived(receive, principal)
        except (Unauthorized, NotLocal, HTTPException, LakesweepError) as exc:
            await (await _refusal(scope, exc))(scope, receive, send)
            return
        scope[PRINCIPAL] = principal
        self._running += 1
        try:
            await self._app(scope, body, send)
        finally:
            self._running -= 1

    async def _admit(self, scope: Scope) -> Principal | None:
        """Who sent it, as far as that matters. Raises if it may not be answered. Reads no body."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            raise HTTPException(413, _too_large(self._limits))
        credential = hashlib.sha256(headers.get(b"authorization", b"")).digest()
        if credential not in self._proven:
            self._take(f"address {(scope.get('client') or ('', 0))[0]}")
        if scope["path"] in OPEN_PATHS:
            return None
        try:
            principal = await self._gatekeeper.admit(Request(scope))
        except (Unauthorized, NotLocal):
            self._proven.pop(credential, None)
            raise
        if credential in self._proven:
            self._take(f"token {principal.name}")
        elif b"authorization" in headers:
            self._proven[credential] = None
            if len(self._proven) > self._limits.clients_remembered:
                self._proven.popitem(last=False)
        return principal

    def _take(self, client: str) -> None:
        wait = self._rates.take(client)
        if wait:
            raise _too_much("too many requests from this client", wait)

    async def _arrived(self, receive: Receive, principal: Principal | None) -> Receive:
        """The complete body. A slow one takes no slot that others need."""
        sender = principal.name if principal else ""
        if self._arriving[sender] >= self._limits.bodies_at_once:
            raise _too_much("this client has too many requests in progress", 1)
        self._arriving[sender] += 1
        try:
            messages = await _whole_body(receive, self._limits)
        finally:
            self._arriving[sender] -= 1
        if self._running >= self._limits.at_once:
            raise _too_much("too many requests at once", 1)
        return _replayed(messages, receive)


def _too_much(detail: str, wait: float) -> HTTPException:
    """`wait` is when it is worth asking again, in seconds."""
    return HTTPException(429, detail, {"Retry-After": str(int(wait) + 1)})


async def _refusal(scope: Scope, exc: Exception) -> Response:
    """The answer to a request that nobody reads to its end, so its connection ends with it."""
    answer = await problems.answer(Request(scope), exc)
    answer.headers["Connection"] = "close"
    return answer


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


async def _whole_body(receive: Receive, limits: Limits) -> list[Message]:
    """Every message of it. HTTPException if it is too long or too slow."""
    messages: list[Message] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            while not messages or messages[-1].get("more_body", False):
                messages.append(await receive())
                size += len(messages[-1].get("body", b""))
                if size > limits.body_bytes:
                    raise HTTPException(413, _too_large(limits))
    except TimeoutError as exc:
        raise HTTPException(408, "the body did not arrive in time") from exc
    return messages


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    """Gives a body that has arrived to the app; after it, waits for the client to go away."""
    arrived = iter(messages)

    async def next_message() -> Message:
        for message in arrived:
            return message
        return await receive()

    return next_message


def _too_large(limits: Limits) -> str:
    return f"the request body may have at most {limits.body_bytes} bytes"


def _with_security_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
