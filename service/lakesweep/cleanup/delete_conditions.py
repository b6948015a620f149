"""The last question before a request to delete is sent, and the answer that ends a sweep.

Between the look at the head with which a batch begins and its requests lie the audit record, the journal, a store that
throttles, and perhaps a machine that stood still. So a deleter asks here once more, for every request and every
repetition of one: has the table moved on, does a person hold it back, has somebody stopped the run? And with the
request in hand, without waiting for anything: is the lease still ours?
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lakesweep.aio import interruption
from lakesweep.cleanup import addresses
from lakesweep.model.errors import LakesweepError
from lakesweep.ports.deleter import Deleted, DeleteStatus, not_sent
from lakesweep.ports.run import Fence
from lakesweep.ports.table import MatchBy

T = TypeVar("T")

Revalidate = Callable[[], Awaitable[frozenset[str]]]
"""Match keys of everything that became referenced after the plan was made; a bare name stands for every object that
is called so. Raises when the table must be left."""

REFERENCED = "referenced again since the plan was made"


async def nobody_objects() -> None:
    """Nobody holds the table back."""


class Shared(Generic[T]):
    """One question for all who ask at the same time. An answer counts only for those who asked before it was sought:
    who comes while it is under way waits for the next one."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._turn = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._answer: T

    async def __call__(self) -> T:
        """The answer to a question that was put after this call began."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._answered < mine:
                until = self._asked
                self._answer = await self._ask()
                self._answered = until
            return self._answer


@dataclass(kw_only=True)
class LastWord:
    """One for a sweep; `about` gives a batch's deleter what it has to ask."""

    revalidate: Revalidate
    match_by: MatchBy
    fence: Fence
    stop: asyncio.Event
    ask_owners: Callable[[], Awaitable[None]] = nobody_objects
    """Raises Refused if a person holds the table back by now."""
    ended_by: LakesweepError | None = None
    """Why nothing more was sent, if so."""
    _owners: Shared[None] = field(init=False)

    def __post_init__(self) -> None:
        self._owners = Shared(self.ask_owners)

    def about(self, etags: Mapping[str, str]) -> BatchConditions:
        """For one batch. `etags` are those of the objects that were judged, by path."""
        return BatchConditions(self, etags)

    async def spared(self, paths: Sequence[str]) -> frozenset[str]:
        """Those that became referenced. Raises when nothing at all may be sent."""
        self.check()
        await self._owners()
        referenced = await self.revalidate()  # last, since what it finds is what can be lost
        return still_referenced(paths, referenced, self.match_by)

    def check(self) -> None:
        """Waits for nothing. Raises when nothing may be sent any more; once said, it stays so."""
        if self.ended_by is not None:
            raise self.ended_by
        self.fence.check_time()
        if self.stop.is_set():
            raise interruption(self.stop)


class BatchConditions:
    """The Conditions of one batch: what the sweep's last word says, as a deleter answers it."""

    def __init__(self, word: LastWord, etags: Mapping[str, str]) -> None:
        self._word = word
        self.etags = etags

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        """Those that must not be sent. Whatever is not known keeps all of them and ends the sweep."""
        try:
            spared = await self._word.spared(paths)
        except LakesweepError as exc:
            self._word.ended_by = self._word.ended_by or exc
            return {path: not_sent(path, str(exc)) for path in paths}
        return {path: Deleted(path=path, fate=DeleteStatus.SPARED, why=REFERENCED) for path in spared}

    def ended(self) -> str | None:
        """Why nothing may be sent at this very moment."""
        try:
            self._word.check()
        except LakesweepError as exc:
            self._word.ended_by = self._word.ended_by or exc
            return str(exc)
        return None


def still_referenced(paths: Sequence[str], referenced: frozenset[str], match_by: MatchBy) -> frozenset[str]:
    """Those that something refers to, by match key or, where every object of a name is meant, by name."""
    if not referenced:
        return frozenset()
    keys, names = (addresses.match_key_list(paths, by) for by in (match_by, MatchBy.NAME))
    return frozenset(
        path for path, key, name in zip(paths, keys, names, strict=True) if key in referenced or name in referenced
    )
