"""Random Iceberg tables, written by pyiceberg and judged by other people's code: which files a table names is counted
by pyiceberg's own reader.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import strategies as st
from tests.builders.cycles import Bench, SetClock
from tests.builders.faults import Faults
from tests.builders.iceberg import Lake, LakeTable, pause
from tests.peers.independent import by_pyiceberg

from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, ListingMode
from lakesweep.ports.state import StateStore
from lakesweep.state.memory import MemoryStateStore

NOW_LATER = timedelta(days=10)

STEPS = st.lists(
    st.sampled_from(
        [
            "append",
            "append",
            "overwrite",
            "delete",
            "tag",
            "branch",
            "rollback",
            "stage",
            "their_expire",
            "re_add_path",
            "statistics",
            "old_orphan",
            "young_orphan",
        ]
    ),
    min_size=3,
    max_size=9,
)


@dataclass
class IcebergWorld:
    """One lake with one table, which can be put back to where it was."""

    home: Path
    table: LakeTable
    clock: SetClock
    policy: CleanupPolicy
    young: set[str]
    tags: set[str] = field(default_factory=set)
    """Tags that another writer set during a cycle."""
    listing: ListingMode = ListingMode.ALWAYS

    @property
    def _backup(self) -> Path:
        return self.home / "backup"

    def __post_init__(self) -> None:
        shutil.copytree(self.home / "lake", self._backup)

    def new_store(self) -> StateStore:
        return MemoryStateStore(self.clock)

    def rewind(self) -> None:
        # In place, since metadata spells absolute addresses; copy2 keeps the modification times.
        shutil.rmtree(self.home / "lake")
        shutil.copytree(self._backup, self.home / "lake")
        # Caches and audit records too: another cycle makes the same calls only from the same start.
        shutil.rmtree(self.home / "scratch", ignore_errors=True)
        self.table.lake.catalog = self.table.lake.another_client()

    def files(self) -> set[str]:
        """All files but metadata.json, whose names are random for every commit."""
        return {path for path in self.table.lake.files() if not path.endswith(".metadata.json")}

    def statistics(self) -> set[str]:
        """Statistics that the metadata still names, also for snapshots that pyiceberg's own expiry took away."""
        return {entry.statistics_path for entry in self.table.refresh().metadata.partition_statistics}

    async def plan(self, store: StateStore) -> CleanupRun:
        return await self.cycle(store=store, execute=False)

    async def cycle(
        self, faults: Faults | None = None, store: StateStore | None = None, *, execute: bool = True
    ) -> CleanupRun:
        bench = Bench(
            root=self.home / "lake",
            clock=self.clock,
            scratch=self.home / "scratch",
            faults=faults or Faults(),
            store=store,
            listing=self.listing,
        )
        ours = self.table.lake.format(storage=bench.storage, writer=bench.writer)
        ref = (await self.table.open()).ref
        return await bench.run(await ours.open(ref), self.policy, execute=execute)

    def _named(self) -> set[str]:
        return {f"file://{path}" for path in by_pyiceberg(self.table.refresh()).files()}

    def check(self) -> None:
        named = self._named()
        optional = {path for path in named if path.endswith((".metadata.json", "version-hint.text"))}
        lost = named - optional - self.table.lake.files()
        assert not lost, f"live files are gone: {lost}"
        assert f"file://{self.table.table.metadata_location.removeprefix('file://')}" in self.table.lake.files()
        assert self.young <= self.table.lake.files(), "a young file is gone"
        for ref in self.table.table.metadata.refs.values():
            self.table.rows(ref.snapshot_id)
        assert self.tags <= set(self.table.table.metadata.refs), "a tag that was set meanwhile is gone"

    def check_nothing_dead_is_left(self) -> None:
        left = self.table.lake.files() - self._named() - self.statistics() - self.young
        assert left == set(), "something dead is left"

    async def check_recovered(self, expected: set[str]) -> None:
        assert self.files() == expected

    def act(self, step: str) -> None:
        table = self.table
        match step:
            case "append":
                table.append(1000)
            case "rollback":
                table.rollback(table.in_order()[0])
            case "tag":
                name = f"racing{len(self.tags)}"
                table.refresh()
                table.tag(name, table.in_order()[0])
                self.tags.add(name)

    def close(self) -> None:
        shutil.rmtree(self.home)


def histories() -> st.SearchStrategy[tuple[list[str], float, int]]:
    return st.tuples(STEPS, st.floats(0, 1), st.integers(1, 3))


def steps() -> st.SearchStrategy[str]:
    return st.sampled_from(["append", "tag", "rollback"])


def build(home: Path, history: tuple[list[str], float, int]) -> IcebergWorld:
    """Play the history; then let ten days pass, so that `cut` of the snapshots are past their age."""
    steps, cut, keep = history
    lake = Lake.make(home / "lake")
    table = lake.create()
    table.append(1)
    dropped: list[str] = []
    young: set[str] = set()
    for number, step in enumerate(steps, start=2):
        play(table, step, number, dropped, young)
        pause()
    now = datetime.now(UTC) + NOW_LATER
    for path in young:
        recent = now.timestamp() - 3600
        os.utime(path.removeprefix("file://"), (recent, recent))
    times = sorted(snapshot.timestamp_ms for snapshot in table.refresh().metadata.snapshots)
    cutoff = datetime.fromtimestamp(times[int(cut * (len(times) - 1))] / 1000, UTC)
    policy = CleanupPolicy(max_snapshot_age=now - cutoff, min_snapshots_to_keep=keep, batch_size=3)
    return IcebergWorld(home=home, table=table, clock=SetClock(now), policy=policy, young=young)


def play(table: LakeTable, step: str, number: int, dropped: list[str], young: set[str]) -> None:
    data = Path(table.table.location().removeprefix("file://")) / "data"
    match step:
        case "append":
            table.append(number)
        case "overwrite":
            dropped += [task.file.file_path for task in table.refresh().scan().plan_files()]
            table.overwrite(number)
        case "delete":
            table.delete(number - 1)
        case "tag":
            table.tag(f"t{number}", table.current)
        case "branch":
            table.branch(f"b{number}", table.current)
            table.append(number, branch=f"b{number}")
        case "rollback":
            table.rollback(table.in_order()[number % len(table.snapshot_ids())])
        case "stage":
            table.stage(number)
        case "their_expire":
            with suppress(ValueError):
                oldest = min(table.refresh().metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
                table.table.maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()
        case "re_add_path":
            live = {task.file.file_path for task in table.refresh().scan().plan_files()}
            again = [path for path in dropped if path not in live][:1]
            if again:
                table.refresh().add_files(again)
        case "statistics":
            table.add_partition_statistics(table.current)
        case "old_orphan" | "young_orphan":
            data.mkdir(exist_ok=True)
            orphan = data / f"{step}-{number}.parquet"
            orphan.write_bytes(b"never committed")
            if step == "young_orphan":
                young.add(f"file://{orphan}")
