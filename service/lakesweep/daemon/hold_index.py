"""Which tables are held, answered quickly for many tables and many holds. Pure.

A scope without a pattern is looked up by the table's name and by what holds it: `acme/prod/orders`, `acme/prod`,
`acme`. A scope with a pattern is compiled once, and only tables of the tenant that it names are matched against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from lakesweep.ports.state import Hold

_PATTERN = re.compile(r"[*?[]")

MAX_HOLDS = 200
"""Of one tenant. A person who holds more tables than that pauses their dataset or tenant instead."""


class HoldIndex:
    """Every hold there is at one moment."""

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self.holds = tuple(holds)
        self._named: dict[str, Hold] = {}
        self._patterns: dict[str | None, list[Hold]] = {}
        for hold in self.holds:
            self._named[hold.scope.rstrip("/")] = hold
            self._named[hold.scope] = hold  # also of a name that would be a pattern
            if _PATTERN.search(hold.scope):
                self._patterns.setdefault(_tenant(hold.scope), []).append(hold)

    def __bool__(self) -> bool:
        return bool(self.holds)

    def covering(self, label: str) -> Hold | None:
        """A hold that names this table, or something that holds it; None if there is none."""
        scope = label
        while scope:
            if scope in self._named:
                return self._named[scope]
            scope = scope.rpartition("/")[0]
        for tenant in (None, label.partition("/")[0]):
            for hold in self._patterns.get(tenant, ()):
                if _compiled(hold.scope).match(label):
                    return hold
        return None

    def count(self, tenant: str) -> int:
        """Holds of this one tenant."""
        return sum(hold.scope.partition("/")[0] == tenant for hold in self.holds)


def _tenant(scope: str) -> str | None:
    """The one tenant whose tables the pattern can match; None if there may be several."""
    first = scope.partition("/")[0]
    return None if _PATTERN.search(first) else first


@lru_cache(maxsize=10_000)
def _compiled(scope: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(one)})" for one in (scope, f"{scope.rstrip('/')}/*")))
