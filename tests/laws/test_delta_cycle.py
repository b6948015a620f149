"""The laws of a cycle over random Delta histories, with faults at any I/O call.

A model of the table, kept apart from the product, says what each version has. Whatever happens: the newest state
and every version inside the log's retention can be rebuilt from what is left, and all their files are there.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, stored_vector, sweep
from tests.builders.faults import Faults, Killed
from tests.laws import examples
from tests.peers.delta_reader import rebuild

from lakesweep.formats.delta.options import DeltaOptions, VacuumMode
from lakesweep.model.errors import LakesweepError
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.state.memory import MemoryStateStore

LAWS = settings(
    deadline=None,
    max_examples=examples(15, soak=500),
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target),
)
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
class World:
    """One table, what each of its versions has, and what must never be deleted."""

    home: Path
    writer: DeltaWriter
    hours: list[int]
    """How long before NOW each version was committed."""
    versions: dict[int, set[str]] = field(default_factory=dict)
    committed: dict[int, datetime] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    removed: dict[str, datetime] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    old: set[str] = field(default_factory=set)

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

    async def cycle(
        self,
        faults: Faults | None = None,
        store: MemoryStateStore | None = None,
        *,
        mode: VacuumMode = VacuumMode.FULL,
        now: datetime = NOW,
        policy: CleanupPolicy = POLICY,
    ):
        bench = Bench(
            root=self.home / "lake",
            clock=SetClock(now),
            scratch=self.home / "scratch",
            faults=faults or Faults(),
            store=store,
        )
        options = DeltaOptions(vacuum_mode=mode)
        return await sweep(self.place, execute=True, policy=policy, bench=bench, options=options)

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


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def build(home: Path, steps: list[str], hours: int, kind: str) -> World:
    """Play the steps, `hours` apart, the last of them now."""
    configuration = {
        "delta.logRetentionDuration": f"interval {LOG_RETENTION.days} days",
        "delta.deletedFileRetentionDuration": f"interval {FILE_RETENTION.days} days",
    }
    writer = DeltaWriter(
        LocalPlace(home / "lake" / "t"), configuration=configuration, features=("deletionVectors", "v2Checkpoint")
    )
    world = World(home, writer, [])
    ages = [timedelta(hours=hours * (len(steps) - number)) for number in range(len(steps) + 1)]
    writer.create(NOW - ages[0])
    world.remember(NOW - ages[0])
    for number, (step, age) in enumerate(zip(steps, ages[1:], strict=True), start=1):
        play(world, step, number, NOW - age, kind)
    return world


def play(world: World, step: str, number: int, at: datetime, kind: str) -> None:
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


@LAWS
@given(STEPS, st.integers(1, 40), st.sampled_from(KINDS), st.sampled_from(VacuumMode), st.sampled_from((1, 4, 9)))
async def test_nothing_needed_is_lost_and_a_second_cycle_finds_nothing(steps, hours, kind, mode, versions):
    policy = replace(POLICY, min_snapshots_to_keep=versions)
    with tempfile.TemporaryDirectory() as home:
        world = build(Path(home), steps, hours, kind)
        first = await world.cycle(mode=mode, policy=policy)
        assert first.run.outcome is Outcome.DONE, first.run.reason
        world.check()
        left = world.old & world.place.names()
        assert left == (world.old if mode is VacuumMode.LITE else set()), (
            "only a full vacuum finds what no commit named"
        )
        for version in range(max(0, world.writer.version - versions + 1), world.writer.version):
            assert rebuild(world.place.path, version, {name for _, name in _VECTORS}) == world.versions[version]
        second = await world.cycle(mode=mode, policy=policy)
        assert second.run.outcome is Outcome.DONE
        assert not second.names


@LAWS
@given(STEPS, st.integers(1, 40), st.sampled_from(KINDS), st.sampled_from(VacuumMode), st.data())
@pytest.mark.parametrize("kill", [False, True])
async def test_a_fault_at_any_call_loses_nothing_and_the_next_cycle_ends_the_same(kill, steps, hours, kind, mode, data):
    with tempfile.TemporaryDirectory() as home:
        world = build(Path(home), steps, hours, kind)
        backup = Path(home) / "backup"
        shutil.copytree(Path(home) / "lake", backup)
        counted = Faults()
        await world.cycle(counted, mode=mode)
        clean = world.place.names()
        shutil.rmtree(Path(home) / "lake")
        shutil.copytree(backup, Path(home) / "lake")
        at = data.draw(st.integers(0, 10_000)) % len(counted.calls)  # their number may differ a little from run to run
        after = data.draw(st.booleans())
        note(f"fault at {at}: {counted.calls[at]} after={after}")
        store = MemoryStateStore(SetClock(NOW))
        try:
            await world.cycle(Faults(at=at, kill=kill, after=after), store, mode=mode)
        except (Killed, BaseExceptionGroup, LakesweepError) as exc:
            note(f"ended by {exc!r}")
        world.check()
        await world.cycle(store=MemoryStateStore(SetClock(NOW)), mode=mode)
        world.check()
        left = world.place.names()
        assert clean <= left
        extra = [name for name in left - clean if not world.waits(name)]
        if extra and mode is VacuumMode.LITE:  # the log that named them went first; a listing finds them
            await world.cycle(store=MemoryStateStore(SetClock(NOW)), mode=VacuumMode.FULL)
            world.check()
            extra = [name for name in extra if name in world.place.names()]
        assert not extra


async def test_a_checkpoint_without_its_commit_goes_when_it_is_due(tmp_path):
    world = build(tmp_path, ["checkpoint", "add", "checkpoint"], 37, "classic")
    world.place.delete(f"_delta_log/{0:020d}.json")
    checkpoint = f"_delta_log/{0:020d}.checkpoint.parquet"
    assert world.waits(checkpoint)
    await world.cycle()
    assert checkpoint in world.place.names()
    await world.cycle(now=NOW + LOG_RETENTION)
    assert checkpoint not in world.place.names()
    assert rebuild(world.place.path, 1, set()) == world.versions[1]
