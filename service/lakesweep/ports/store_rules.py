"""Read what a store does with deleted objects. Reads only, and never stops a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from lakesweep.model.location import Location
from lakesweep.model.store_rules import UNKNOWN, LeftoverPage, StoreRules, not_counted


class StoreRulesReader(Protocol):
    """Knows whether versions are kept at a place, and for how long."""

    async def rules(self, place: Location) -> StoreRules:
        """The rules for a place. What cannot be determined is unknown; that never raises."""

    def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:
        """What is stored below a place besides its objects, one kind after the other. A kind that cannot be counted
        completely ends with a page that says why; that never raises. It costs requests, so it runs only when a person
        requests it."""

    async def aclose(self) -> None:
        """Close connections."""


class NoStoreRules:
    """No rules are read: everything is unknown."""

    async def rules(self, place: Location) -> StoreRules:  # noqa: ARG002  # the port's
        """Unknown."""
        return UNKNOWN

    async def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:  # noqa: ARG002  # the port's
        """Nothing is counted."""
        for page in not_counted("the store is not queried"):
            yield page

    async def aclose(self) -> None:
        """Nothing to close."""
