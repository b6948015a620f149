"""Random Paimon tables. A model, kept apart from the product, says what each snapshot, tag and branch needs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations
from pathlib import Path

from hypothesis import strategies as st
from tests.builders.cycles import Bench
from tests.builders.faults import Faults
from tests.builders.paimon_steps import MovingTable, Step, handle, world

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, ListingMode
from lakesweep.ports.state import StateStore
from lakesweep.state.memory import MemoryStateStore

PARTITIONS = st.sampled_from(["a", "b", None])
BRANCHES = ["dev", "team/dev"]


def steps() -> st.SearchStrategy[Step]:
    branches = st.sampled_from(["main"] * 4 + BRANCHES)
    written = st.builds(
        lambda name, partition, branch: Step(name, (partition,), branch),
        st.sampled_from(["append", "append", "overwrite", "compact", "upgrade", "drop"]),
        PARTITIONS,
        branches,
    )
    other = st.builds(
        lambda name, branch: Step(name, (), branch), st.sampled_from(["restore", "index", "merge"]), branches
    )
    tags = st.builds(
        lambda verb, name: Step(verb, (name,)), st.sampled_from(["tag", "delete_tag"]), st.sampled_from("xy")
    )
    kept = st.sampled_from(
        [
            *(Step("branch", (name,)) for name in BRANCHES),
            *(Step("delete_branch", (name,)) for name in BRANCHES),
            *(Step("rollback", (back,)) for back in (1, 2)),
        ]
    )
    moved = st.sampled_from(
        [
            *(Step("rollback_to_tag", (name,)) for name in "xy"),
            *(Step("rename_tag", names) for names in ("xy", "yx")),
            *(Step("fast_forward", (name,)) for name in BRANCHES),
            *(Step("rename_branch", names) for names in permutations(BRANCHES)),
            Step("recreate"),
        ]
    )
    changelog = st.builds(lambda partition: Step("changelog", (partition,)), PARTITIONS)
    return st.one_of(written, written, written, other, tags, kept, moved, changelog)


HISTORIES = st.lists(steps(), min_size=3, max_size=18)
_LASTING = {"changelog.time-retained": "2 h", "changelog.num-retained.min": "2"}
OPTIONS = st.sampled_from([{}, {}, _LASTING, _LASTING | {"changelog-producer": "input"}])
"""With changelogs that go with their snapshots, and with such as outlive them."""


def needed(table: MovingTable) -> set[str]:
    return {key for name in table.standing() for key in table.needs[name]}


class Doom:
    """Which snapshots a cycle may have decided to expire so far. Ids are used again, so their content counts too."""

    def __init__(self, table: MovingTable, keep: int) -> None:
        self._table, self._keep = table, keep
        self._doomed: set[tuple[str, bytes]] = set()
        self.look()

    def look(self) -> None:
        """After everything that happens: whatever the cycle read, it was one of these states."""
        found = self._table.snapshot_files()
        latest = self._table.lines["main"].next_id - 1
        self._doomed |= {
            (name, data) for name, data in found.items() if int(name.rpartition("-")[2]) <= latest - self._keep
        }

    def going(self) -> frozenset[str]:
        """What may be half gone by now, but never the latest."""
        latest = f"snapshot/snapshot-{self._table.lines['main'].next_id - 1}"
        found = self._table.snapshot_files().items()
        return frozenset(name for name, data in found if (name, data) in self._doomed and name != latest)

    def allows(self, step: Step) -> bool:
        """What goes back to something that is going at this very moment would be lost to any other expiry as well."""
        table = self._table
        if step.name == "rollback":
            return f"snapshot/snapshot-{table.lines['main'].next_id - 1 - step.arguments[0]}" not in self.going()
        if step.name == "rollback_to_tag":
            tag = table.states.get(f"tag/tag-{step.arguments[0]}")
            return tag is None or f"snapshot/snapshot-{tag.next_id - 1}" not in self.going()
        if step.name == "fast_forward":
            under = f"branch/branch-{step.arguments[0]}/"
            copies = {key.removeprefix(under) for key in table.standing() if key.startswith(f"{under}snapshot/")}
            return copies.isdisjoint(self.going())
        return True

    def restore(self, step: Step) -> None:
        """A file comes back from what stays, if it does."""
        table = self._table
        safe = {key for name in table.standing() if name not in self.going() for key in table.needs[name]}
        every = table.files
        table.files = [file for file in every if file.places() <= safe]
        step(table)
        table.files = every


@dataclass
class PaimonWorld:
    """One table in memory. It is written anew from its history, where others are put back."""

    history: tuple[list[Step], int, dict[str, str]]
    quiet: bool = True
    """Nothing is half gone: no cycle was cut short, and nobody else was at work."""
    listing: ListingMode = ListingMode.ALWAYS
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.rewind()

    def rewind(self) -> None:
        steps, self.keep, options = self.history
        self._open.close()
        self.table, self.bench = self._open.enter_context(world([Step("append", ("a",), "main"), *steps], options))
        self.young = {self.table.stray("young", old=False)}
        self.table.stray("old", old=True)
        self.doom = Doom(self.table, self.keep)

    def new_store(self) -> StateStore:
        return MemoryStateStore(self.bench.clock)

    async def plan(self, store: StateStore) -> CleanupRun:
        return await self.cycle(store=store, execute=False)

    async def cycle(
        self, faults: Faults | None = None, store: StateStore | None = None, *, execute: bool = True
    ) -> CleanupRun:
        """At most ten snapshots expire at a time, so a whole cycle is several. With faults it is one."""
        bench = Bench(
            root=self.bench.root,
            clock=self.bench.clock,
            scratch=self.bench.scratch,
            faults=faults or Faults(),
            store=store,
            listing=self.listing,
        )
        policy = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(0), min_snapshots_to_keep=self.keep)
        if not execute:
            return await bench.run(handle(self.table, bench), policy, execute=False)
        self.quiet = faults is None
        run = await bench.run(handle(self.table, bench), policy)
        while faults is None and run.expired_snapshots:
            run = await bench.run(handle(self.table, bench), policy)
        return run

    def act(self, step: Step) -> None:
        if step.name == "restore":
            self.doom.restore(step)
        elif self.doom.allows(step):
            step(self.table)
            if step.name == "recreate":  # everything went with the old table
                self.young = set()
        self.doom.look()

    def check(self) -> None:
        assert self.table.lost(besides=frozenset() if self.quiet else self.doom.going()) == set()
        assert self.young <= self.table.stored()

    def files(self) -> set[str]:
        return {key for key in self.table.stored() if key.startswith(("dt=", "manifest/", "index/"))}

    def check_nothing_dead_is_left(self) -> None:
        needs = needed(self.table) | self.young
        if self.history[2]:  # changelogs that outlive their snapshots need files that the model does not count
            assert needs <= self.files()
        else:
            assert self.files() == needs

    async def check_recovered(self, expected: set[str]) -> None:
        self.check_nothing_dead_is_left()

    def close(self) -> None:
        self._open.close()


def histories() -> st.SearchStrategy[tuple[list[Step], int, dict[str, str]]]:
    """Steps, how many snapshots stay, the table's options."""
    return st.tuples(HISTORIES, st.integers(1, 4), OPTIONS)


def build(home: Path, history: tuple[list[Step], int, dict[str, str]]) -> PaimonWorld:
    return PaimonWorld(history)
