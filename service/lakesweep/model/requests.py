"""Requests of a cycle to its stores, and their cost by a price list. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

KINDS: tuple[Literal["list", "get", "head", "put", "delete"], ...] = ("list", "get", "head", "put", "delete")
"""What stores charge for by the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests by kind, as stores charge for them, and the bytes that came back. Sums with + and -."""

    list: int = 0
    get: int = 0
    head: int = 0
    put: int = 0
    delete: int = 0
    bytes_read: int = 0
    """Bytes of objects that were read."""

    def __add__(self, other: Requests) -> Requests:
        return Requests(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Requests)})

    def __sub__(self, other: Requests) -> Requests:
        """Never below zero."""
        left = {one.name: getattr(self, one.name) - getattr(other, one.name) for one in fields(Requests)}
        return Requests(**{name: max(0, number) for name, number in left.items()})

    def times(self, number: int) -> Requests:
        return Requests(**{one.name: getattr(self, one.name) * number for one in fields(Requests)})

    @property
    def total(self) -> int:
        return sum(getattr(self, kind) for kind in KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a store charges: per thousand requests of a kind, and per GB (10^9 bytes)."""

    list: float = 0.0
    get: float = 0.0
    head: float = 0.0
    put: float = 0.0
    delete: float = 0.0
    read_gb: float = 0.0
    currency: str = "USD"

    def of(self, requests: Requests) -> float:
        """The cost of these requests, rounded to a millionth."""
        cost = sum(getattr(requests, kind) * getattr(self, kind) for kind in KINDS) / 1000
        return float(round(cost + requests.bytes_read / 1e9 * self.read_gb, 6))


FREE = Prices()
"""Prices of a local disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expense:
    """The cost of a cycle: requests, time and money."""

    requests: Requests = Requests()
    seconds: float = 0.0
    cost: float = 0.0
    currency: str = "USD"
