"""Who a request comes from. A token's secret is random and 256 bits long, so its plain SHA-256 is as good as it.

Without any token the API is open, but only to this machine: on a loopback address, to requests that name it as such
and that no foreign web page sent. Once a token was ever made, every request needs a valid one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from starlette.requests import Request

from lakesweep.model.access import EVERY_TENANT, ApiToken, Principal, Role
from lakesweep.model.errors import SettingsError
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import StateStore

_TOKEN = re.compile(r"lakesweep_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODY = hashlib.sha256(b"").hexdigest()


class Unauthorized(Exception):
    """No valid token. It does not reveal whether the token was wrong, expired or revoked."""


class NotLocal(Exception):
    """The API is open to this machine only, and the request comes from elsewhere or was sent by a foreign web page."""


def mint(*, role: Role, tenants: Iterable[str], now: datetime, lasts: timedelta | None) -> tuple[ApiToken, str]:
    """A new token, and the text that its owner sends. The text is stored nowhere and cannot be recovered."""
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    token = ApiToken(
        id=token_id,
        digest=_digest(secret),
        role=role,
        tenants=tuple(sorted(set(tenants))),
        created_at=now,
        expires_at=now + lasts if lasts else None,
    )
    return token, f"lakesweep_{token_id}_{secret}"


class Gatekeeper:
    """Says who sent a request, or raises."""

    def __init__(self, store: StateStore, clock: Clock, *, loopback: bool) -> None:
        self._store = store
        self._clock = clock
        self._loopback = loopback

    async def admit(self, request: Request) -> Principal:
        """The request's principal. Raises Unauthorized or NotLocal."""
        given = request.headers.get("authorization")
        if given is not None:
            return await self._by_token(given)
        if not self._loopback or await self._store.list_tokens():
            raise Unauthorized
        if not _of_this_machine(request):
            raise NotLocal
        return Principal(name="local", role=Role.OPERATE, tenants=(EVERY_TENANT,))

    async def _by_token(self, given: str) -> Principal:
        scheme, _, text = given.partition(" ")
        spelled = _TOKEN.fullmatch(text.strip())
        if scheme.lower() != "bearer" or not spelled:
            raise Unauthorized
        token = await self._store.get_token(spelled[1])
        # An unknown id takes the same path as a wrong secret.
        right = hmac.compare_digest(_digest(spelled[2]), token.digest if token else _NOBODY)
        if token is None or not right or not token.valid_at(self._clock.now()):
            raise Unauthorized
        return Principal(name=f"token {token.id}", role=token.role, tenants=token.tenants)


async def check_listen(listen: str, store: StateStore) -> None:
    """Refuse to be open to the network: SettingsError unless the address is loopback or there are tokens."""
    if not is_loopback(listen) and not await store.list_tokens():
        raise SettingsError(
            f"admin.listen = {listen!r} is reachable from other machines, and there is no token yet: "
            "create one with `lakesweep token new`, or listen on 127.0.0.1"
        )


def is_loopback(listen: str) -> bool:
    """Is `host:port` a loopback address? Names other than localhost are not resolved."""
    return _is_loopback_host(listen.rpartition(":")[0])


def _is_loopback_host(host: str) -> bool:
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"


def _of_this_machine(request: Request) -> bool:
    """A foreign web page can make this machine's browser send requests, and can resolve its own name to our address."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    name = urlsplit(f"//{host}").hostname
    if name is None or not _is_loopback_host(name):
        return False
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    return origin is None or urlsplit(origin).netloc == host


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
