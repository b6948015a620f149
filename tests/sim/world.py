"""The simulated world: stored objects, one clock, one source of chance, and a record of everything that happened.

Nothing here knows the product. Time moves only by `advance`; chance comes only from `random`, which the story sets
anew before every step, so that a story that loses a step keeps the others as they were.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zlib import crc32

START = datetime(2026, 1, 5, 8, 0, 0, tzinfo=UTC)


class Killed(BaseException):
    """The process that made a call is gone. No Exception, so that nothing in the product can catch it."""


class Fault(Exception):
    """A call that goes wrong. Raised by an adversary; ports turn it into what their real ones raise.

    `kind` is `unavailable`, `timeout`, `throttled`, `denied`, `partial` (of a delete, only a part is done), `cut` (of
    a read, only the beginning comes), `repeat` (of a listing, the last page comes again), `short` (of a listing, a page
    ends early and more come) or `stale` (a catalog answers what was true a commit ago)."""

    def __init__(self, kind: str = "unavailable") -> None:
        super().__init__(kind)
        self.kind = kind


class Lost(AssertionError):
    """The oracle found that something was lost, or that the product did what it must never do."""


class Stored:
    """One object as it was written. Never changed: another content is another Stored, so `is` compares bytes."""

    __slots__ = ("_etag", "data", "modified_at", "modified_ms", "who")

    def __init__(self, data: bytes, modified_at: datetime, who: str) -> None:
        self.data, self.modified_at, self.who = data, modified_at, who
        self.modified_ms: int | None = round(modified_at.timestamp() * 1000)
        self._etag: str | None = None

    @property
    def etag(self) -> str:
        """A digest of the content, as S3 gives for small objects."""
        if self._etag is None:
            self._etag = hashlib.md5(self.data, usedforsecurity=False).hexdigest()
        return self._etag


@dataclass(frozen=True, slots=True)
class Rules:
    """The operator's retention, in hours. Models judge expiries by it, and the product's policy is built from it."""

    grace: float = 24
    max_snapshot_age: float = 72
    min_snapshots: int = 1
    stream_state: float = 168
    confirm_after: float = 0
    batch_size: int = 1000


class Event(NamedTuple):
    """One line of the trace."""

    at: datetime
    actor: str
    call: str
    answer: str

    def __str__(self) -> str:
        return f"{self.at:%m-%d %H:%M:%S}  {self.actor:<12} {self.call}{'  -> ' if self.answer else ''}{self.answer}"


@dataclass(slots=True)
class Call:
    """A call of the product to a port: which process, which port, what it does, to what, and the how manyeth it is."""

    process: str
    port: str
    operation: str
    target: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.port}.{self.operation} {self.target}".rstrip()


class Adversary:
    """What may happen around every call of the product. This one does nothing. One that lets time pass for others
    meanwhile answers with something to wait for."""

    def before(self, call: Call) -> Awaitable[None] | None:
        """May do another writer's step, wait, or raise (a fault, Killed) before the call has its effect."""

    def after(self, call: Call) -> Awaitable[None] | None:
        """The same between the effect and its answer."""


Watcher = Callable[[str, Stored | None, str], None]
"""Told of every change by the product: address, what is there now (None: deleted), which process."""


@dataclass
class World:
    """Everything that exists outside of the product. Addresses are texts such as `s3://lake/wh/db/t/data/a.parquet`."""

    rules: Rules = field(default_factory=Rules)
    now: datetime = START
    random: random.Random = field(default_factory=lambda: random.Random(0))
    objects: dict[str, Stored] = field(default_factory=dict)
    trace: list[Event] = field(default_factory=list)
    tracing: bool = False
    """Traces cost time: they are written when a story is replayed."""
    seen: Counter[str] = field(default_factory=Counter)
    """Situations, and how often each came up: `world.seen["a commit between listing and marking"] += 1`."""
    adversary: Adversary = field(default_factory=Adversary)
    watchers: list[Watcher] = field(default_factory=list)
    cycling: bool = False
    """Is a cycle of the product under way?"""
    planned: bool = False
    """Has that cycle looked at the tables around for the last time?"""
    ageless: bool = False
    """Does the store say nothing about the age of some objects?"""
    unlisted: set[str] = field(default_factory=set)
    """Objects that can be read and that no listing shows."""
    asked: set[str] = field(default_factory=set)
    """What the product has asked to be deleted in this cycle, whatever came of it."""
    discarded: set[str] = field(default_factory=set)
    """What the product wrote and took away again before anybody could know of it."""
    vacuumed: set[str] = field(default_factory=set)
    """What others have deleted since the last restore began, as a table's garbage or with the whole table."""
    verdict: Lost | None = None
    """The first thing that was found lost while the product was at work."""
    calls: int = 0
    call: Call | None = None
    """The newest call of the product."""
    last: Call | None = None
    """The one before it."""
    effected: int = 0
    """The number of the newest call whose effect is there."""
    names: int = 0
    pages: dict[tuple[str, str, int], Any] = field(default_factory=dict)
    """What listings found, by place, beginning and size of a page. Forgotten when something changes at the place."""
    _keys: list[str] = field(default_factory=list)

    # ---- time and chance

    def advance(self, span: timedelta) -> None:
        """Let time pass."""
        self.now += span

    def ms(self) -> int:
        """The time as tables write it."""
        return int(self.now.timestamp() * 1000)

    def uuid(self) -> str:
        """A name that nobody else has. Does not use `random`: it changes nobody's choices."""
        self.names += 1
        digits = hashlib.md5(b"%d" % self.names, usedforsecurity=False).hexdigest()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"

    # ---- objects

    def put(self, address: str, data: bytes, who: str, modified_at: datetime | None = None) -> Stored:
        """Write an object, whole. Stores keep times in whole seconds."""
        if address not in self.objects:
            insort(self._keys, address)
        self.forget(address)
        stored = self.objects[address] = Stored(data, (modified_at or self.now).replace(microsecond=0), who)
        if self.ageless and crc32(address.encode()) % 3 == 0:
            stored.modified_ms = None
        return stored

    def get(self, address: str) -> bytes:
        """The content of an object that must be there."""
        try:
            return self.objects[address].data
        except KeyError:
            raise Lost(f"{address} is needed and is not there") from None

    def remove(self, address: str) -> Stored | None:
        """Delete an object; None if there was none."""
        stored = self.objects.pop(address, None)
        if stored is not None:
            self.forget(address)
            del self._keys[bisect_left(self._keys, address)]
        return stored

    def below(self, place: str, after: str = "") -> Iterator[tuple[str, Stored]]:
        """Objects whose address begins so, in order, those behind `after` only. Nothing may change meanwhile."""
        first = bisect_right(self._keys, after) if after else bisect_left(self._keys, place)
        for at in range(first, len(self._keys)):
            key = self._keys[at]
            if not key.startswith(place):
                return
            yield key, self.objects[key]

    def forget(self, address: str) -> None:
        """What listings of its place have found."""
        for key in [key for key in self.pages if address.startswith(key[0])]:
            del self.pages[key]

    def changed(self, address: str, process: str) -> None:
        """The product wrote or deleted an object: tell those who look on."""
        stored = self.objects.get(address)
        with self.judging():
            for watch in self.watchers:
                watch(address, stored, process)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """What is found lost in here is remembered: it is raised into the product, which may catch it."""
        try:
            yield
        except Lost as exc:
            self.verdict = self.verdict or exc
            raise

    # ---- the record

    def say(self, actor: str, call: str, answer: object = "") -> None:
        """One line of the trace."""
        if self.tracing:
            self.trace.append(Event(self.now, actor, call, str(answer)))
