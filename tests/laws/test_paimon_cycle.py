"""Laws of a cycle over any history: nothing reachable is lost, whatever fails and whoever else is at work."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from itertools import permutations
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.cycles import AlwaysOurs, Bench
from tests.builders.faults import Killed
from tests.builders.paimon_steps import NOW, MovingTable, Step, handle, world
from tests.laws import examples

from lakesweep.formats.paimon import merge
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.manifests import read_entries
from lakesweep.model.errors import StateError
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome

PARTITIONS = st.sampled_from(["a", "b", None])
BRANCHES = ["dev", "team/dev"]

laws = settings(max_examples=examples(15, soak=500), deadline=None, suppress_health_check=list(HealthCheck))


def _steps() -> st.SearchStrategy[Step]:
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


HISTORIES = st.lists(_steps(), min_size=3, max_size=18)
_LASTING = {"changelog.time-retained": "2 h", "changelog.num-retained.min": "2"}
OPTIONS = st.sampled_from([{}, {}, _LASTING, _LASTING | {"changelog-producer": "input"}])
"""With changelogs that go with their snapshots, and with such as outlive them."""


async def cycle(table: MovingTable, bench: Bench, keep: int = 1) -> CleanupRun:
    policy = CleanupPolicy(dry_run=False, max_snapshot_age=timedelta(0), min_snapshots_to_keep=keep)
    return await bench.run(handle(table, bench), policy)


def needed(table: MovingTable) -> set[str]:
    return {key for name in table.standing() for key in table.needs[name]}


@laws
@given(HISTORIES, st.integers(1, 4))
async def test_what_stands_keeps_everything_it_needs_and_what_is_dead_goes(history: list[Step], keep: int) -> None:
    with world(history) as (table, bench):
        young = table.stray("young", old=False)
        old = table.stray("old", old=True)
        run = await cycle(table, bench, keep)
        assert run.outcome is Outcome.DONE, run.reason
        assert table.lost() == set()
        assert young in table.stored()
        assert old not in table.stored()
        again = await cycle(table, bench, keep)
        while again.expired_snapshots:  # at most ten at a time
            again = await cycle(table, bench, keep)
        assert (again.outcome, again.deletion.deleted.files) == (Outcome.DONE, 0)
        assert table.lost() == set()
        left = {key for key in table.stored() if key.startswith(("dt=", "manifest/", "index/"))}
        assert left == needed(table) | {young}


@laws
@given(HISTORIES, st.integers(0, 400), st.booleans(), st.booleans())
async def test_a_fault_at_any_call_keeps_live_files_and_the_next_run_completes(
    history: list[Step], at: int, kill: bool, after: bool
) -> None:
    with world(history) as (table, bench):
        bench.faults.at, bench.faults.kill, bench.faults.after = at, kill, after
        latest = table.lines["main"].next_id - 1
        going = frozenset(f"snapshot/snapshot-{number}" for number in range(1, latest))
        with contextlib.suppress(Killed, StateError):
            await cycle(table, bench)
        assert table.lost(besides=going) == set()
        bench.faults.at = None
        run = await cycle(table, bench)
        while run.expired_snapshots:
            run = await cycle(table, bench)
        assert run.outcome is Outcome.DONE, run.reason
        assert table.lost() == set()
        assert {key for key in table.stored() if key.startswith(("dt=", "manifest/", "index/"))} == needed(table)


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


@laws
@given(
    HISTORIES, st.lists(st.tuples(st.integers(0, 150), _steps()), min_size=1, max_size=6), st.integers(1, 4), OPTIONS
)
async def test_others_may_commit_tag_branch_and_roll_back_at_any_moment(
    history: list[Step], meanwhile: list[tuple[int, Step]], keep: int, options: dict[str, str]
) -> None:
    """Another process at work between any two calls. It may lose a race, but never a file that it still needs."""
    with world([Step("append", ("a",), "main"), *history], options) as (table, bench):
        calls = 0
        waiting = sorted(meanwhile, key=lambda pair: pair[0])
        doom = Doom(table, keep)

        def act(operation: str, address: str) -> None:
            nonlocal calls
            calls += 1
            if waiting and waiting[0][0] <= calls:
                step = waiting.pop(0)[1]
                if step.name == "restore":
                    doom.restore(step)
                elif doom.allows(step):
                    step(table)
                doom.look()

        table.bucket.faults = act
        try:
            await cycle(table, bench, keep)
        finally:
            table.bucket.faults = None
        assert table.lost(besides=doom.going()) == set()
        run = await cycle(table, bench, keep)
        while run.expired_snapshots:
            run = await cycle(table, bench, keep)
        assert run.outcome is Outcome.DONE, run.reason
        assert table.lost() == set()


@laws
@given(HISTORIES, st.integers(1, 20))
async def test_a_consumer_keeps_what_it_has_still_to_read(history: list[Step], following: int) -> None:
    with world([Step("append", ("a",), "main"), *history]) as (table, bench):
        table.consume("reader", following)
        standing = [name for name in table.standing() if name.startswith("snapshot/")]
        run = await cycle(table, bench)
        assert run.outcome is Outcome.DONE, run.reason
        kept = {name for name in standing if int(name.rpartition("-")[2]) >= following}
        assert kept <= set(table.standing())
        assert table.lost() == set()


@laws
@given(HISTORIES)
async def test_a_merge_keeps_every_live_file_and_merging_again_does_nothing(history: list[Step]) -> None:
    options = {"manifest.merge-min-count": "2", "manifest.target-file-size": "2 kb"}
    with world(history, options) as (table, bench):
        line = table.lines["main"]
        live = {file.name for file in line.live.values()}
        snapshot = await handle(table, bench).compact_manifests(NOW, AlwaysOurs())
        found = await live_names(table, bench)
        assert found == live
        if snapshot is not None:
            assert snapshot.document["totalRecordCount"] == sum(file.rows for file in line.live.values())
        assert await handle(table, bench).compact_manifests(NOW, AlwaysOurs()) is None


@laws
@given(st.integers(0, 250), st.booleans(), st.booleans(), st.integers(1, 4))
async def test_a_fault_at_any_call_of_a_drop_leaves_the_partition_whole_or_gone(
    at: int, kill: bool, after: bool, files: int
) -> None:
    options = {"partition.expiration-time": "1000 d", "partition.expiration-check-interval": "0 ms"}
    options |= {"manifest.merge-min-count": "2"}
    history = [Step("append", ("2020-01-01",), "main")] * files + [Step("append", ("2026-04-30",), "main")]
    with world(history, options) as (table, bench):
        policy = CleanupPolicy(dry_run=False)
        old = {file.name for file in table.files if file.partition == "2020-01-01"}
        every = {file.name for file in table.files}
        bench.faults.at, bench.faults.kill, bench.faults.after = at, kill, after
        with contextlib.suppress(Killed, StateError):
            await bench.run(handle(table, bench), policy)
        bench.faults.at = None
        assert await live_names(table, bench) in (every, every - old)
        assert table.lost() == set()
        run = await bench.run(handle(table, bench), policy)
        assert run.outcome is Outcome.DONE, run.reason
        assert await live_names(table, bench) == every - old
        assert table.lost() == set()
        again = await bench.run(handle(table, bench), policy)
        assert again.expired_partitions == ()


async def live_names(table: MovingTable, bench: Bench) -> set[str]:
    """Live files of the latest snapshot, straight from its manifests."""
    opened = handle(table, bench)
    state = await opened.load()
    if state.native.latest is None:
        return set()
    lists = ListReader(TableFiles(storage=bench.storage, location=opened.location))
    live: dict[Any, str] = {}
    for meta in await lists.manifests_of(state.native.latest):
        for entry in read_entries(await lists.read_manifest(meta)):
            if entry["_KIND"] == 0:
                live[merge.identity(entry)] = entry["_FILE"]["_FILE_NAME"]
            else:
                live.pop(merge.identity(entry), None)
    return set(live.values())
