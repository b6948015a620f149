"""Random Delta tables.

A model of the table, kept apart from the product, says what each version has. Whatever happens: the newest state
and every version inside the log's retention can be rebuilt from what is left, and all their files are there.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from hypothesis import strategies as st
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, stored_vector, sweep
from tests.builders.faults import Faults
from tests.peers.delta_reader import rebuild

from lakesweep.formats.delta.table import DeltaOptions, VacuumMode
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, ListingMode
from lakesweep.ports.state import StateStore
from lakesweep.state.memory import MemoryStateStore

LOG_RETENTION = timedelta(days=5)
FILE_RETENTION = timedelta(days=3)
POLICY = CleanupPolicy(grace_period=timedelta(days=1), batch_size=3)
KINDS = ("classic", "multipart", "v2-json", "v2-parquet")
_VECTORS = (
    ("vBn[lx{q8@P<9BNH/isA", "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"),
    ("^-aqEH.-t@S}K{vb[*k^", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
)

STEPS = st.lists(
    st.sampled_from(
        (
            *("add", "add", "add_odd", "vector", "remove", "remove", "re_add", "nothing", "checkpoint", "checkpoint"),
            *("broken_checkpoint", "lost_part", "old_orphan", "young_orphan", "compact", "checksum", "skewed"),
            "misspelled",
        )
    ),
    min_size=4,
    max_size=25,
)


@dataclass
class DeltaWorld:
    """One table, what each of its versions has, and what must never be deleted."""

    home: Path
    writer: DeltaWriter
    kind: str
    """How checkpoints are written."""
    mode: VacuumMode = VacuumMode.FULL
    keep: int = 1
    versions: dict[int, set[str]] = field(default_factory=dict)
    committed: dict[int, datetime] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    removed: dict[str, datetime] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    old: set[str] = field(default_factory=set)
    listing: ListingMode = ListingMode.ALWAYS

    @property
    def place(self) -> LocalPlace:
        place = self.writer.place
        assert isinstance(place, LocalPlace)
        return place

    def remember(self, at: datetime) -> None:
        """After every commit: what this version has."""
        now = {unquote(path) for path, _ in self.writer.live}
        vectors = {name for add in self.writer.live.values() for text, name in _VECTORS if text in json.dumps(add)}
        self.versions[self.writer.version] = now | vectors
        self.committed[self.writer.version] = at

    async def plan(self, store: StateStore) -> CleanupRun:
        return await self.cycle(store=store, execute=False)

    async def cycle(
        self,
        faults: Faults | None = None,
        store: StateStore | None = None,
        *,
        now: datetime = NOW,
        execute: bool = True,
    ) -> CleanupRun:
        bench = Bench(
            root=self.home / "lake",
            clock=SetClock(now),
            scratch=self.home / "scratch",
            faults=faults or Faults(),
            store=store,
            listing=self.listing,
        )
        policy = replace(POLICY, min_snapshots_to_keep=self.keep)
        options = DeltaOptions(vacuum_mode=self.mode)
        return (await sweep(self.place, execute=execute, policy=policy, bench=bench, options=options)).run

    def new_store(self) -> StateStore:
        return MemoryStateStore(SetClock(NOW))

    def save(self) -> None:
        shutil.copytree(self.home / "lake", self.home / "backup")

    def rewind(self) -> None:
        shutil.rmtree(self.home / "lake")
        shutil.copytree(self.home / "backup", self.home / "lake")

    def act(self, step: str) -> None:
        play(self, step, 1000 + len(self.versions), NOW, self.kind)

    def files(self) -> set[str]:
        return self.place.names()

    def close(self) -> None:
        shutil.rmtree(self.home)

    def waits(self, name: str) -> bool:
        """Is it a log file inside the log's retention? A checkpoint that was written long after its commit goes with
        it, but if a run ends between the two, it waits for its own time."""
        written = datetime.fromtimestamp((self.place.path / name).stat().st_mtime, UTC)
        return name.startswith("_delta_log/") and written > _midnight(NOW - LOG_RETENTION)

    # --- laws

    def check(self) -> None:
        """What must hold at any time, in the middle of things, too."""
        names = self.place.names()
        newest = max(self.versions)
        lost = self.versions[newest] - names
        assert not lost, f"files of the newest version are gone: {lost}"
        assert self.young <= names, "a young file is gone"
        protected = {path for path, at in self.removed.items() if NOW - at <= FILE_RETENTION}
        assert protected <= names, "a file removed within the retention is gone"
        for version, at in self.committed.items():
            if NOW - at < LOG_RETENTION:
                found = rebuild(self.place.path, version, {name for _, name in _VECTORS})
                assert found == self.versions[version], f"version {version} is lost"

    def check_nothing_dead_is_left(self) -> None:
        left = self.old & self.place.names()
        assert left == (self.old if self.mode is VacuumMode.LITE else set()), (
            "only a listing finds what no commit named"
        )
        for version in range(max(0, self.writer.version - self.keep + 1), self.writer.version):
            assert rebuild(self.place.path, version, {name for _, name in _VECTORS}) == self.versions[version]

    async def check_recovered(self, expected: set[str]) -> None:
        left = self.place.names()
        assert expected <= left
        extra = {name for name in left - expected if not self.waits(name)}
        if extra and self.mode is VacuumMode.LITE:  # the log that named them went first; a listing finds them
            self.mode = VacuumMode.FULL
            await self.cycle()
            self.check()
            extra &= self.place.names()
        assert not extra


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def histories() -> st.SearchStrategy[tuple[list[str], int, str, VacuumMode, int]]:
    """Steps, hours between them, how checkpoints are written, how it is vacuumed, how many versions stay."""
    return st.tuples(
        STEPS, st.integers(1, 40), st.sampled_from(KINDS), st.sampled_from(VacuumMode), st.sampled_from((1, 4, 9))
    )


def steps() -> st.SearchStrategy[str]:
    return st.sampled_from(["add", "remove", "checkpoint", "nothing", "checksum"])


def build(home: Path, history: tuple[list[str], int, str, VacuumMode, int]) -> DeltaWorld:
    """Play the steps, `hours` apart, the last of them now."""
    steps, hours, kind, mode, keep = history
    configuration = {
        "delta.logRetentionDuration": f"interval {LOG_RETENTION.days} days",
        "delta.deletedFileRetentionDuration": f"interval {FILE_RETENTION.days} days",
    }
    writer = DeltaWriter(
        LocalPlace(home / "lake" / "t"), configuration=configuration, features=("deletionVectors", "v2Checkpoint")
    )
    world = DeltaWorld(home, writer, kind, mode, keep)
    ages = [timedelta(hours=hours * (len(steps) - number)) for number in range(len(steps) + 1)]
    writer.create(NOW - ages[0])
    world.remember(NOW - ages[0])
    for number, (step, age) in enumerate(zip(steps, ages[1:], strict=True), start=1):
        play(world, step, number, NOW - age, kind)
    world.save()
    return world


def play(world: DeltaWorld, step: str, number: int, at: datetime, kind: str) -> None:
    writer = world.writer
    before = writer.version
    match step:
        case "add":
            writer.add(f"part-{number}.parquet", at=at)
        case "add_odd":
            writer.add(f"k=a b%3A{number}/#ü {number}.parquet", at=at)
        case "vector":
            text, name = _VECTORS[number % 2]
            writer.place.put(name, b"vector", days_ago(90))
            writer.add(f"v-{number}.parquet", at=at, vector=stored_vector(text, number))
        case "remove" | "skewed":
            path = next(iter(sorted(unquote(path) for path, _ in writer.live)), None)
            if path is None:
                return
            # A writer's clock may be an hour behind the store's.
            removed_at = at - timedelta(hours=1) if step == "skewed" else at
            writer.remove(path, at=at, removed_at=removed_at)
            world.dropped.append(path)
            world.removed[path] = removed_at
        case "misspelled":
            # To readers it is another file that is removed here.
            known = next(iter(writer.live.values()), None)
            if known is None:
                return
            remove = {**known, "path": f"%{ord(known['path'][0]):02X}{known['path'][1:]}", "deletionTimestamp": 0}
            writer.commit([{"remove": remove}], at)
        case "re_add":
            path = next((one for one in world.dropped if one in writer.place.names()), None)
            if path is None:
                return
            writer.add(path, at=at, write=False)
            world.removed.pop(path, None)
        case "nothing":
            writer.commit([], at)
        case "checkpoint":
            writer.checkpoint(kind, at=at)
        case "broken_checkpoint":
            writer.log(f"{writer.version:020d}.checkpoint.{number}.parquet", b"broken", at)
        case "lost_part":
            writer.log(f"{writer.version:020d}.checkpoint.0000000001.0000000009.parquet", b"part", at)
        case "compact":
            writer.log(f"{0:020d}.{writer.version:020d}.compacted.json", b"{}", at)
        case "checksum":
            writer.checksum(at)
        case "old_orphan":
            name = f"orphan-{number}.parquet"
            writer.place.put(name, b"orphan", days_ago(60))
            world.old.add(name)
        case "young_orphan":
            name = f"young-{number}.parquet"
            writer.place.put(name, b"orphan", NOW - timedelta(hours=20))
            world.young.add(name)
    if writer.version > before:
        world.remember(at)
