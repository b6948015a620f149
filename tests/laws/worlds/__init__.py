"""Worlds that the laws of a cycle run in: one random table per format, what happens to it, and who judges the result.

The laws in `test_cycle.py` know only this interface, so a new format brings a world and gets all laws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from hypothesis import strategies as st
from tests.builders.faults import Faults

from lakesweep.model.run import CleanupRun, ListingMode
from lakesweep.ports.state import StateStore


class World(Protocol):
    """One table with its history played, standing still until a cycle or another writer moves it."""

    listing: ListingMode
    """How its cycles look at it."""

    async def cycle(self, faults: Faults | None = None, store: StateStore | None = None) -> CleanupRun:
        """One executed cycle on it."""

    async def plan(self, store: StateStore) -> CleanupRun:
        """One cycle that changes nothing."""

    def new_store(self) -> StateStore:
        """An empty state store with the clock of this world."""

    def rewind(self) -> None:
        """Back to the moment before the first cycle."""

    def act(self, step: Any) -> None:
        """Another writer does something, at any moment."""

    def check(self) -> None:
        """What must hold at every moment: nothing that anybody can still ask for is gone."""

    def files(self) -> set[str]:
        """What is there, as far as two runs from the same start can be compared."""

    def check_nothing_dead_is_left(self) -> None:
        """What must hold after a whole cycle that nothing disturbed."""

    async def check_recovered(self, expected: set[str]) -> None:
        """What must hold after the cycle that follows a fault. `expected` is what an undisturbed cycle leaves."""

    def close(self) -> None:
        """Forget everything."""


class Kind(Protocol):
    """How worlds of one format are made."""

    def histories(self) -> st.SearchStrategy[Any]:
        """What may have happened to a table."""

    def steps(self) -> st.SearchStrategy[Any]:
        """What another writer may do during a cycle."""

    def build(self, home: Path, history: Any) -> World:
        """The world after this history."""
