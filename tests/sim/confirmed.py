"""With `confirm_after`: what goes was unreferenced long enough before, as an earlier run could see. No product code.

A run that was refused has seen nothing. A run that ended well and found a file referenced, from its beginning to its
end, makes all that was seen before void. Where a run failed or was killed nobody can tell how far it got: the product
is given the benefit of the doubt, as it is for clocks that differ by a little.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tests.sim.formats import Model
from tests.sim.world import Lost, World

_SLACK = timedelta(hours=1)


class Confirmed:
    """When each object was first seen unreferenced."""

    def __init__(self, world: World, model: Model) -> None:
        self._world, self._model = world, model
        self._span = timedelta(hours=world.rules.confirm_after)
        self._seen: dict[str, datetime] = {}
        self._began, self._kept = world.now, set[str]()
        self._there = set[str]()

    def begins(self) -> None:
        """A cycle begins."""
        if self._span:
            self._began, self._kept, self._there = self._world.now, self._wanted(), set(self._world.objects)

    def interrupted(self) -> None:
        """Something happens while it works. It may have seen what its own commit has freed by now, even if that is
        added again."""
        if self._span:
            self._kept &= self._wanted()

    def ended(self, took: Iterable[str], outcome: str, *, alone: bool) -> None:
        """It is over: these went."""
        if not self._span:
            return
        for address in took:
            first = self._seen.get(address)
            if first is None or self._world.now - first + _SLACK < self._span:
                raise Lost(f"{address} was deleted, and no earlier run has seen it unreferenced for {self._span}")
            self._world.seen["a file went that an earlier run had seen"] += 1
        if outcome.startswith("refused"):
            return
        kept = self._wanted()
        for address in {*self._there, *self._world.objects} - (self._kept & kept):
            self._seen.setdefault(address, self._began)
        if outcome == "done" and alone:
            for address in self._kept & kept:
                self._seen.pop(address, None)

    def _wanted(self) -> set[str]:
        """By readers of what will not expire: a run that is about to expire something does not count its readers."""
        expiring = self._model.expiring()
        return {address for who, files in self._model.readers() if who not in expiring for address in files}
