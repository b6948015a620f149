"""What the operator of a story does beside running cycles: cycles that list nothing, a trash, runs that are taken back.

The laws: what a cycle without a listing takes is exactly what a full plan calls expired, and of a Delta table also what
its log says was removed and a full plan takes too. What went to the trash is
whole there. A run that is taken back, once or after an interruption, brings each of its files back as it was.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.sim.product import Runner
from tests.sim.ways import Ways
from tests.sim.world import Lost, Stored, World

from lakesweep.cleanup import plan_file
from lakesweep.model.files import Reason
from lakesweep.model.run import CleanupRun, ListingMode

_LAST = 3
"""Runs that somebody may want to take back."""


@dataclass
class Operator:
    """Of one story."""

    ways: Ways
    world: World
    runner: Runner
    taken: list[tuple[str, Mapping[str, Stored]]] = field(default_factory=list)
    """The newest runs that moved something, and what each took."""

    # ---- cycles without a listing

    def listing(self, seed: int | None) -> ListingMode:
        """How the next cycle looks at the table."""
        if self.ways.interval is None:
            return ListingMode.ALWAYS
        never = seed is not None and random.Random(f"listing {seed}").random() < 0.5
        return ListingMode.NEVER if never else ListingMode.WHEN_DUE

    def compare(self, full: CleanupRun | None, run: CleanupRun, *, alone: bool) -> None:
        """A full plan of the same moment, which nothing came of, and a cycle without a listing."""
        if run.plan is None or run.plan.listed or run.unchanged:
            return
        self.world.seen[f"a cycle without a listing{'' if alone else ', and something came between'}"] += 1
        if full is None or full.plan is None or full.refusal or run.refusal or full.plan.skipped_sources:
            return
        expired, going = _paths(full, Reason.EXPIRED), _paths(run, None)
        # A Delta log still names what it removed, so that this goes too: a full plan finds nothing that refers to it.
        allowed = _paths(full, None) if self.runner.model.format == "delta" else expired
        if more := sorted(going - allowed):
            raise Lost(f"without a listing {more[0]} goes, which a full plan does not call expired")
        if less := sorted(expired - going):
            raise Lost(f"without a listing {less[0]} stays, which a full plan calls expired")
        self.world.seen["a plan without a listing was compared"] += 1

    # ---- the trash

    def cycle_ended(self, run_id: str, took: Mapping[str, Stored]) -> None:
        """Whatever a run took is whole in the trash."""
        if not self.ways.trash or not took:
            return
        for address, stored in took.items():
            there = self.world.objects.get(self._in_trash(run_id, address))
            if there is None or there.data != stored.data:
                raise Lost(f"{address} went, and is not in the trash of {run_id}")
        self.taken = [*self.taken, (run_id, dict(took))][-_LAST:]

    def wants_back(self, seed: int) -> bool:
        """Does somebody take a run back now?"""
        return bool(self.taken) and random.Random(f"back {seed}").random() < 0.2

    def choose(self, seed: int) -> tuple[str, Mapping[str, Stored]]:
        """One of the newest runs."""
        return random.Random(f"which {seed}").choice(self.taken)

    def restorable(self, run_id: str, took: Mapping[str, Stored]) -> dict[str, Stored | None]:
        """What a restore has to end with, by address: the file itself, or None where any object will do, since one is
        there already that nobody may touch."""
        objects, found = self.world.objects, dict[str, Stored | None]()
        self.world.vacuumed.clear()
        for address, stored in took.items():
            if address in objects:
                found[address] = None
            elif self._in_trash(run_id, address) in objects:
                found[address] = stored
        return found

    def check_back(self, run_id: str, wanted: Mapping[str, Stored | None]) -> None:
        """All of it is there, but for what another tool has deleted again since: to it, it is garbage as before."""
        for address, stored in wanted.items():
            if address in self.world.vacuumed:
                continue
            there = self.world.objects.get(address)
            if there is None or (stored is not None and there.data != stored.data):
                raise Lost(f"{run_id} was taken back, and {address} is {'gone' if there is None else 'another object'}")
        self.world.seen["a run was taken back"] += 1

    def _in_trash(self, run_id: str, address: str) -> str:
        root = self.runner.model.tenant_root
        return f"{root}.lakesweep-trash/{run_id}/{address.removeprefix(root)}"


def _paths(run: CleanupRun, reason: Reason | None) -> set[str]:
    rows = (row for batch in plan_file.read_batches(run.plan.rows_path) for row in batch)
    return {row.path for row in rows if reason is None or row.reason is reason}
