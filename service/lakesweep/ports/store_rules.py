"""Read what a store does with deleted objects. Reads only, and never stops a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from lakesweep.model.location import Location
from lakesweep.model.store_rules import LeftoverPage, StoreRules


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
