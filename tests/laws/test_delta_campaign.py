"""Every action of a Delta writer before every single call of a cycle: no version inside the retention is lost.

A model kept apart from the product says what each version has, byte for byte; an independent reader says what the log
that is left makes of it. Each test prints how many combinations it tried and how they ended.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.builders.cycles import Bench, SetClock
from tests.builders.delta import NOW, DeltaWriter, LocalPlace, days_ago, stored_vector, sweep
from tests.builders.faults import Faults
from tests.peers.delta_reader import rebuild

from lakesweep.daemon.shared_files import SharedFileIndex, first_segments, inside
from lakesweep.formats.delta.table import DeltaOptions, DeltaTable, VacuumMode
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.table import TableState

RETENTION = timedelta(days=3)
POLICY = CleanupPolicy(grace_period=timedelta(days=1), batch_size=2, max_concurrent_deletions=1)
FIRST = ("^-aqEH.-t@S}K{vb[*k^", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")
SECOND = ("vBn[lx{q8@P<9BNH/isA", "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin")
VECTORS = {name for _, name in (FIRST, SECOND)}
SECOND_LOOKS = 5
"""After every so many moments a second cycle follows, undisturbed."""
LATER = NOW + timedelta(days=30)
"""When nothing but a clone needs the files that it took from its source."""


@dataclass(kw_only=True)
class Meanwhile(Faults):
    """Somebody acts right before one call."""

    moment: int | None = None
    happens: Callable[[], object] = int

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        if not after and len(self.calls) == self.moment:
            self.happens()
        super().hit(name, error, after=after)


@dataclass(kw_only=True)
class Watching(Faults):
    """Somebody looks before every call."""

    looks: Callable[[], object] = int

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        self.looks()
        super().hit(name, error, after=after)


@dataclass
class World:
    """A table with something for every rule: expired and young removes, one that the newest checkpoint has forgotten,
    deletion vectors, old log files, old and young files that no commit names."""

    place: LocalPlace
    writer: DeltaWriter = field(init=False)
    bytes_of: dict[str, bytes] = field(default_factory=dict)
    versions: dict[int, tuple[datetime, set[str]]] = field(default_factory=dict)
    cloned: set[str] = field(default_factory=set)
    """Files of this table that a shallow clone beside it uses."""

    def __post_init__(self) -> None:
        configuration = {
            "delta.logRetentionDuration": "interval 5 days",
            "delta.deletedFileRetentionDuration": f"{RETENTION.days} days",
        }
        features = ("deletionVectors", "v2Checkpoint")
        self.writer = DeltaWriter(self.place, configuration=configuration, features=features)
        self._history()

    def _history(self) -> None:
        writer = self.writer
        self.did(writer.create(days_ago(20)), days_ago(20))
        self.add("a.parquet", "b.parquet", "c.parquet", at=days_ago(19))
        self.remove("a.parquet", at=days_ago(18))
        self.vector("b.parquet", FIRST, at=days_ago(12))
        writer.checkpoint("v2-parquet", at=days_ago(12))
        self.add("d.parquet", at=days_ago(6))
        self.remove("c.parquet", at=days_ago(4))
        writer.checkpoint(at=days_ago(4))
        self.add("e.parquet", at=days_ago(2))
        self.remove("d.parquet", at=days_ago(1))
        kept = dict(writer.tombstones)
        writer.tombstones.clear()
        writer.checkpoint(at=days_ago(0.99))
        writer.tombstones = kept
        self.add("f.parquet", at=days_ago(0.9))
        self.put("orphan.parquet", at=days_ago(15))
        self.put("young.parquet", at=NOW - timedelta(hours=1))

    # --- what writers do

    def put(self, name: str, at: datetime = NOW) -> None:
        self.bytes_of[name] = f"{name} of {self.writer.version}".encode()
        self.place.put(name, self.bytes_of[name], at)

    def did(self, version: int, at: datetime = NOW) -> None:
        """After each commit: what this version has."""
        files = {unquote(path) for path, _ in self.writer.live}
        named = json.dumps(list(self.writer.live.values()))
        self.versions[version] = (at, files | {name for text, name in (FIRST, SECOND) if text in named})

    def add(self, *names: str, at: datetime = NOW, write: bool = True) -> None:
        for name in names if write else ():
            self.put(name, at)
        self.did(self.writer.add(*names, at=at, write=False), at)

    def remove(self, *names: str, at: datetime = NOW) -> None:
        self.did(self.writer.remove(*names, at=at), at)

    def vector(self, name: str, vector: tuple[str, str], at: datetime = NOW) -> None:
        """Rows of a file are deleted: the same file with a vector takes its place."""
        text, file = vector
        self.put(file, at)
        gone = self.writer.removal(name, at)
        self.did(self.writer.commit([gone, {"add": self.writer.added(name, stored_vector(text, 4))}], at), at)

    def replace(self, *names: str, at: datetime = NOW) -> None:
        """Everything goes and these come, in one commit."""
        removes = [self.writer.removal(unquote(path), at) for path, _ in list(self.writer.live)]
        adds = [{"add": self.writer.added(name)} for name in names]
        self.did(self.writer.commit([*removes, *adds], at), at)

    def clone(self, version: int) -> None:
        """A table beside this one, as SHALLOW CLONE makes it: a log of its own that names the files of one version
        here by their absolute addresses, deletion vectors too."""
        files = self.versions[version][1]
        beside = DeltaWriter(LocalPlace(self.clone_path), features=self.writer.features, table_id="the clone")
        beside.create()
        for name in sorted(files - VECTORS):
            vector = self._vector_of(name, files)
            beside.commit([{"add": beside.added(name, vector, spelled=self._address(name))}])
        beside.checkpoint()
        self.cloned = files

    @property
    def clone_path(self) -> Path:
        return self.place.path.parent / "clone"

    def _address(self, name: str) -> str:
        return f"file://{self.place.path / name}"

    def _vector_of(self, name: str, files: set[str]) -> dict[str, Any] | None:
        """Those of `b.parquet` are the only ones in versions that are cloned."""
        vector = next(iter(VECTORS & files), None) if name == "b.parquet" else None
        return vector and {**stored_vector(self._address(vector)), "storageType": "p"}

    @property
    def there(self) -> set[str]:
        return self.place.names()

    # --- the law

    def lost(self) -> list[str]:
        """What cannot be read any more of versions that were current inside the retention."""
        found = []
        order = sorted(self.versions)
        for version, following in zip(order, [*order[1:], None], strict=True):
            replaced = NOW if following is None else self.versions[following][0]
            if NOW - replaced >= RETENTION:
                continue
            files = self.versions[version][1]
            try:
                rebuilt = rebuild(self.place.path, version, VECTORS)
            except (OSError, ValueError) as exc:
                found.append(f"version {version}: {exc}")
                continue
            if rebuilt != files:
                found.append(f"version {version} is {sorted(rebuilt)} instead of {sorted(files)}")
            for name in files:
                path = self.place.path / name
                if not path.exists() or path.read_bytes() != self.bytes_of[name]:
                    found.append(f"version {version}: {name}")
        return [
            *found,
            *([] if (self.place.path / "young.parquet").exists() else ["young.parquet"]),
            *self.lost_by_the_clone(),
        ]

    def lost_by_the_clone(self) -> list[str]:
        found = []
        for name in self.cloned:
            path = self.place.path / name
            if not path.exists() or path.read_bytes() != self.bytes_of[name]:
                found.append(f"the clone: {name}")
        return found


def append(world: World) -> None:
    world.add("new.parquet")


def overwrite(world: World) -> None:
    world.put("new.parquet")
    world.replace("new.parquet")


def delete_rows(world: World) -> None:
    world.vector("e.parquet", SECOND)


def delete_rows_again(world: World) -> None:
    world.vector("b.parquet", SECOND)


def restore(world: World) -> None:
    """To a version of the day before yesterday."""
    files = {"b.parquet", "d.parquet"}
    assert files <= world.there
    world.replace(*files)


def restore_long_ago(world: World) -> None:
    """As a writer does it that looks first whether the files are there."""
    files = {"a.parquet", "b.parquet", "c.parquet"}
    if files <= world.there:
        world.replace(*files)


def optimize(world: World) -> None:
    world.put("compacted.parquet")
    world.replace("compacted.parquet")
    world.writer.checkpoint()


def add_an_old_path_again(world: World) -> None:
    for name in {"a.parquet", "c.parquet", "orphan.parquet"} & world.there:
        world.add(name, write=False)


def add_an_old_path_again_and_checkpoint(world: World) -> None:
    add_an_old_path_again(world)
    world.writer.checkpoint("v2-json")


def checkpoint(world: World) -> None:
    world.writer.checkpoint("multipart")


def checkpoint_that_forgets(world: World) -> None:
    world.writer.tombstones.clear()
    world.writer.checkpoint()


def compact_the_log(world: World) -> None:
    lines = [world.place.path / "_delta_log" / f"{version:020d}.json" for version in (7, 8)]
    body = b"".join(path.read_bytes() for path in lines if path.exists())
    world.writer.log(f"{7:020d}.{8:020d}.compacted.json", body, NOW)


def keep_removed_files_longer(world: World) -> None:
    _set(world, "delta.deletedFileRetentionDuration", "INTERVAL 4 WEEKS")


def keep_removed_files_no_longer(world: World) -> None:
    """As somebody leaves it behind after a VACUUM by hand. What was removed today stays all the same."""
    _set(world, "delta.deletedFileRetentionDuration", "interval 1 day")
    world.versions = {version: found for version, found in world.versions.items() if version >= 7}


def keep_the_log(world: World) -> None:
    _set(world, "delta.enableExpiredLogCleanup", "false")


def _set(world: World, key: str, value: str) -> None:
    world.writer.configuration = {**world.writer.configuration, key: value}
    world.did(world.writer.commit([{"metaData": world.writer.metadata()}]))


def drop_and_create(world: World) -> None:
    """The new table takes over what lies there, as a conversion in place does."""
    shutil.rmtree(world.place.path / "_delta_log")
    world.versions = {}
    world.writer = DeltaWriter(world.place, table_id="another")
    world.did(world.writer.create())
    world.add(*({"a.parquet", "b.parquet", "orphan.parquet"} & world.there), write=False)


def vacuum_by_another(world: World) -> None:
    world.did(world.writer.commit([], info={"operation": "VACUUM START"}))
    for name in {"a.parquet", "c.parquet", "orphan.parquet"} & world.there:
        world.place.delete(name)
    world.did(world.writer.commit([], info={"operation": "VACUUM END"}))


def clean_the_log_by_another(world: World) -> None:
    world.writer.checkpoint()
    for name in world.writer.logged():
        if name[:20].isdigit() and int(name[:20]) < 3:
            world.place.delete(f"_delta_log/{name}")


def clone_and_overwrite(world: World) -> None:
    """From then on the clone alone uses these files."""
    world.clone(world.writer.version)
    overwrite(world)


def clone_an_earlier_version(world: World) -> None:
    """With files that are removed here, and a deletion vector."""
    world.clone(6)


ACTIONS = (
    *(append, overwrite, delete_rows, delete_rows_again, restore, restore_long_ago, optimize, add_an_old_path_again),
    *(add_an_old_path_again_and_checkpoint, checkpoint, checkpoint_that_forgets, compact_the_log),
    *(keep_removed_files_longer, keep_removed_files_no_longer, keep_the_log, drop_and_create, vacuum_by_another),
    *(clean_the_log_by_another, clone_and_overwrite, clone_an_earlier_version),
)


async def _case(home: Path, action: Callable[[World], None], mode: VacuumMode, moment: int | None) -> tuple[Any, Any]:
    """One cycle with the action before one call, then one more cycle: what the first one left must also outlive it. A
    clone must keep its files when all retention is over."""
    world = World(LocalPlace(home / "lake" / "t"))
    faults = Meanwhile(moment=moment, happens=lambda: action(world))
    try:
        swept = await _cycle(world, home, mode, faults)
        lost = world.lost()
        if moment is not None and moment % SECOND_LOOKS == 0:
            await _cycle(world, home, mode, Meanwhile())
            lost += world.lost()
            if world.cloned:
                await _cycle(world, home, mode, Meanwhile(), LATER)
                lost += world.lost_by_the_clone()
    finally:
        await asyncio.to_thread(shutil.rmtree, home)
    return swept.run, (faults.calls, lost)


async def _cycle(world: World, home: Path, mode: VacuumMode, faults: Faults, now: datetime = NOW) -> Any:
    bench = Bench(root=home / "lake", clock=SetClock(now), scratch=home / "scratch", faults=faults)
    bench.shared_files = lambda state: _shared_files(world, bench, state)
    return await sweep(world.place, execute=True, policy=POLICY, bench=bench, options=DeltaOptions(vacuum_mode=mode))


async def _shared_files(world: World, bench: Bench, state: TableState) -> list[str]:
    """What the clone uses in the table's place, asked for by the service's own code."""
    if not world.clone_path.exists():
        return []
    ref = TableRef(tenant=TenantId("acme"), dataset="bronze", name="clone", format=FormatName.DELTA)
    beside = DeltaTable(ref, Location.parse(str(world.clone_path)), bench.storage, bench.clock)
    uses = await SharedFileIndex(bench.storage).of([beside], first_segments(state.roots))
    return [path for paths in inside(uses, state.roots, state.ref).values() for path in paths]


@pytest.mark.parametrize("mode", list(VacuumMode))
async def test_without_a_writer_the_cycle_has_something_to_delete(tmp_path, mode):
    """Otherwise the campaign proves nothing."""
    world = World(LocalPlace(tmp_path / "lake" / "t"))
    swept = await _cycle(world, tmp_path, mode, Meanwhile())
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert {"a.parquet", "c.parquet"} <= swept.data
    assert swept.log
    assert not world.lost()


@pytest.mark.parametrize("mode", list(VacuumMode))
async def test_a_version_that_leaves_the_log_is_never_open_without_its_files(tmp_path, mode):
    """Whoever opens one, to restore it for instance, finds all of it or nothing."""
    world = World(LocalPlace(tmp_path / "lake" / "t"))
    gutted: set[str] = set()
    opened: set[int] = set()

    def look() -> None:
        for version in (1, 2):
            try:
                files = rebuild(world.place.path, version, VECTORS)
            except OSError:
                continue
            opened.add(version)
            gutted.update(f"version {version}: {name}" for name in files - world.there)

    swept = await _cycle(world, tmp_path, mode, Watching(looks=look))
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert opened == {1, 2}
    assert {f"{version:020d}.json" for version in (1, 2)} <= swept.log
    assert "a.parquet" in swept.data
    assert not gutted


@pytest.mark.parametrize("mode", list(VacuumMode))
@pytest.mark.parametrize("version", [6, 8])
async def test_a_shallow_clone_keeps_the_files_of_its_source_for_good(tmp_path, mode, version):
    world = World(LocalPlace(tmp_path / "lake" / "t"))
    world.clone(version)
    overwrite(world)
    swept = await _cycle(world, tmp_path, mode, Meanwhile(), LATER)
    assert swept.run.outcome is Outcome.DONE, swept.run.reason
    assert world.cloned
    assert not world.lost_by_the_clone()
    assert swept.data  # what the clone does not use goes


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", list(VacuumMode))
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
async def test_an_action_before_any_call_of_a_cycle_loses_nothing(tmp_path, action, mode):
    """Calls on storage, on the state store and on the audit trail, and the deletes themselves."""
    _, (calls, _) = await _case(tmp_path / "untouched", append, mode, None)
    outcomes: Counter[str] = Counter()
    lost: dict[str, list[str]] = {}
    for moment in range(len(calls)):
        run, (seen, found) = await _case(tmp_path / str(moment), action, mode, moment)
        outcomes[run.refusal.code if run.refusal else str(run.outcome)] += 1
        if found:
            lost[f"before call {moment} ({seen[moment] if moment < len(seen) else 'none'})"] = found
    print(f"\n{action.__name__}, {mode}: {len(calls)} combinations, {dict(outcomes)}, {len(lost)} losses")
    assert not lost
