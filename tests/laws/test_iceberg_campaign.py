"""The Iceberg campaign: every action of a writer, before every single call that a cycle makes.

Calls are those to storage, the catalog, the state store and the audit trail, and the deletes. After the cycle every
snapshot and every ref that the table has must be there to the last byte, judged by pyiceberg, and so must every
snapshot that a second catalog has, and all that was left of an old state when somebody took it up. `make soak` runs it,
one test for each action; each prints how many combinations it ran and how their cycles ended.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table.update import AddSnapshotUpdate, SetLocationUpdate
from pyiceberg.types import StringType
from tests.builders.cycles import Bench, SetClock
from tests.builders.faults import Faults
from tests.builders.iceberg import SCHEMA, Lake, LakeTable, pause
from tests.peers.independent import by_pyiceberg

from lakesweep.model.errors import LakesweepError
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy

CATALOG_CALLS = ("pointer", "commit", "commit_style")


@dataclass
class World:
    """A lake with one table of some history, put back to where it was before every cycle."""

    home: Path
    table: LakeTable
    clock: SetClock
    policy: CleanupPolicy
    dropped: list[str]
    """Data files that no current snapshot has any more."""
    second: LakeTable | None = None
    """The table under another catalog, if somebody took it over."""
    owed: dict[int, set[str]] | None = None
    """By snapshot, what an old state still had when somebody took it up: all that can be judged of it."""
    known: dict[str, bytes] = field(default_factory=dict)
    """Digests of all files that a writer ever saw."""

    @property
    def lake(self) -> Lake:
        return self.table.lake

    def remember(self) -> None:
        for path in self.lake.root.parent.rglob("lake/wh*/**/*"):
            if path.is_file():
                self.known.setdefault(str(path), _digest(path))

    def restore(self) -> None:
        for name in ("lake", "scratch", "second"):
            shutil.rmtree(self.home / name, ignore_errors=True)
        shutil.copytree(self.home / "backup", self.home / "lake")
        self.lake.catalog = self.lake.another_client()
        self.second, self.owed, self.known = None, None, {}
        self.table.refresh()
        self.remember()

    async def cycle(self, faults: Faults) -> str:
        bench = Bench(root=self.home / "lake", clock=self.clock, scratch=self.home / "scratch", faults=faults)
        ours = self.lake.format(storage=bench.storage, writer=bench.writer)
        count_calls(ours._catalog, faults)
        try:
            run = await bench.run(await ours.open((await self.table.open()).ref), self.policy)
        except LakesweepError as exc:
            return type(exc).__name__
        finally:
            await ours.aclose()
        return f"refused {run.refusal.code}" if run.refusal else str(run.outcome)

    def lost(self) -> Iterator[str]:
        """Files that the table names and that are gone or other than they were."""
        for named in self._named():
            path = Path(Location.parse(named).path)
            if not path.exists():
                yield f"{path} is gone"
            elif self.known.get(str(path), _digest(path)) != _digest(path):
                yield f"{path} has changed"

    def _named(self) -> set[str]:
        if self.owed is not None:
            # What the table that was set back has expired since is its own affair.
            has = (self.second or self.table).snapshot_ids()
            return {path for one, paths in self.owed.items() if one in has for path in paths}
        table = self.table.refresh()
        reach = by_pyiceberg(table)
        named = {path for one in reach.by_snapshot.values() for path in one}
        named |= {entry.statistics_path for entry in table.metadata.partition_statistics}
        if self.second is not None:
            theirs = self.second.refresh()
            named |= {path for one in by_pyiceberg(theirs).by_snapshot.values() for path in one}
            named.add(theirs.metadata_location)
        return named


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def count_calls(catalog: Any, faults: Faults) -> None:
    """Of the catalog too."""

    def counted(name: str, inner: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            faults.hit(f"catalog.{name}", RuntimeError, after=False)
            return await inner(*args, **kwargs)

        return call

    for name in CATALOG_CALLS:
        setattr(catalog, name, counted(name, getattr(catalog, name)))


class Meanwhile(Faults):
    """An action of somebody else right before one call of ours."""

    def __init__(self, moment: int | None, act: Callable[[], None]) -> None:
        super().__init__()
        self._moment, self._act = moment, act

    def hit(self, name: str, error: Callable[[], Exception], *, after: bool) -> None:
        super().hit(name, error, after=after)
        if not after and len(self.calls) - 1 == self._moment:
            self._act()


def build(home: Path) -> World:
    """Appends, an overwrite, a delete, a tag, a branch, a staged snapshot, statistics and orphans, all of them old."""
    table = Lake.make(home / "lake").create()
    table.append(1)
    dropped = [task.file.file_path for task in table.refresh().scan().plan_files()]
    for number in (2, 3):
        pause()
        table.overwrite(number)
    table.append(4)
    table.add_partition_statistics(table.current)
    table.tag("kept", table.in_order()[0])
    table.branch("side", table.current)
    table.append(5, branch="side")
    table.stage(6)
    pause()
    table.append(7)
    table.delete(7)
    for index in range(3):
        (home / "lake/wh/db/t/data" / f"orphan-{index}.parquet").write_bytes(b"never committed")
    shutil.copy(Location.parse(dropped[0]).path, home / "lake/wh/db/t/data/late.parquet")
    now = datetime.now(UTC) + timedelta(days=10)
    middle = table.refresh().metadata.snapshots[-2].timestamp_ms
    policy = CleanupPolicy(
        max_snapshot_age=now - datetime.fromtimestamp(middle / 1000, UTC),
        min_snapshots_to_keep=1,
        batch_size=3,
        # One at a time, so that no request is on its way when somebody acts: what was sent cannot be called back.
        max_concurrent_deletions=1,
    )
    shutil.copytree(home / "lake", home / "backup")
    return World(home=home, table=table, clock=SetClock(now), policy=policy, dropped=dropped)


def drop_and_create(world: World) -> None:
    world.lake.catalog.drop_table("db.t")
    world.table.table = world.lake.catalog.create_table("db.t", SCHEMA, location=world.table.table.location())
    world.table.append(50)


def move(world: World) -> None:
    update = SetLocationUpdate(location=f"{world.table.refresh().location()}-now")
    world.lake.catalog.commit_table(world.table.refresh(), (), (update,))
    world.table.append(51)


def re_add_path(world: World) -> None:
    if all(Path(Location.parse(path).path).exists() for path in world.dropped):
        world.table.refresh().add_files(world.dropped)


def re_add_snapshot(world: World) -> None:
    """As somebody does who takes an expiry back, with what an old handle knows."""
    old = world.table.table.metadata.snapshots[0]
    if old.snapshot_id not in world.table.snapshot_ids() and _is_whole(world, old):
        world.lake.catalog.commit_table(world.table.refresh(), (), (AddSnapshotUpdate(snapshot=old),))


def _is_whole(world: World, snapshot: Any) -> bool:
    with suppress(OSError):
        named = _files_of(world.table.table, snapshot)
        return all(Path(Location.parse(path).path).exists() for path in named)
    return False


def _files_of(table: Any, snapshot: Any) -> set[str]:
    """What one snapshot names, by pyiceberg."""
    manifests = snapshot.manifests(table.io)
    entries = [entry for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    data = {entry.data_file.file_path for entry in entries}
    return {snapshot.manifest_list, *(one.manifest_path for one in manifests), *data}


def _left_of(table: Any) -> dict[int, set[str]]:
    """By snapshot, what is there of all that a state names."""
    left: dict[int, set[str]] = {}
    for snapshot in table.metadata.snapshots:
        named = {snapshot.manifest_list, table.metadata_location}
        with suppress(OSError):
            for manifest in snapshot.manifests(table.io):
                named.add(manifest.manifest_path)
                with suppress(OSError):
                    named |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(table.io)}
        left[snapshot.snapshot_id] = {path for path in named if Path(Location.parse(path).path).exists()}
    return left


def _registered(world: World, metadata_location: str) -> LakeTable:
    """The table under another catalog."""
    (world.home / "second").mkdir()
    catalog = load_catalog(
        "second", type="sql", uri=f"sqlite:///{world.home}/second/new.db", warehouse=f"file://{world.lake.root}/wh"
    )
    catalog.create_namespace("db")
    moved = catalog.register_table("db.t", metadata_location)
    return LakeTable(lake=Lake(root=world.lake.root, properties={}, catalog=catalog), name="t", table=moved)


def take_over(commits: int) -> Callable[[World], None]:
    """Another catalog registers the table and goes on with it."""

    def act(world: World) -> None:
        world.second = _registered(world, world.table.refresh().metadata_location)
        for number in range(commits):
            world.second.append(60 + number)

    return act


def second_catalog_expires(world: World) -> None:
    """Its only commit takes a snapshot away, as a crashed expiry of ours would."""
    world.second = _registered(world, world.table.refresh().metadata_location)
    second_expiry_of(world.second)


def take_over_an_old_state(world: World) -> None:
    """Another catalog registers what was current one commit ago, whatever is left of it, and goes on. Its files are of
    this moment by the cycle's clock too: one commit of a week ago, and none since, would be litter of a lost race."""
    earlier = set(world.lake.root.rglob("*"))
    before = world.table.refresh().metadata.metadata_log[-1].metadata_file
    if Path(Location.parse(before).path).exists():
        second = _registered(world, before)
        with suppress(OSError):
            second.append(60)
            world.second, world.owed = second, _left_of(second.refresh())
    for path in set(world.lake.root.rglob("*")) - earlier:
        os.utime(path, (world.clock.now().timestamp(),) * 2)


def second_expiry_of(table: LakeTable) -> None:
    """Of the oldest snapshot that no tag or branch holds."""
    held = {ref.snapshot_id for ref in table.refresh().metadata.refs.values()}
    free = [one for one in table.in_order() if one not in held]
    if free:
        table.table.maintenance.expire_snapshots().by_id(free[0]).commit()


def publish(world: World) -> None:
    """A staged snapshot becomes the current one."""
    staged = [one for one in world.table.in_order() if one != world.table.current]
    world.table.rollback(staged[-1])


def set_back(world: World) -> None:
    """The catalog is restored from a backup of one commit ago, whatever is left of that."""
    before = world.table.refresh().metadata.metadata_log[-1].metadata_file
    if Path(Location.parse(before).path).exists():
        world.lake.catalog.drop_table("db.t")
        world.owed = _left_of(world.lake.catalog.register_table("db.t", before))


def is_inside_a_look(action: str, calls: list[str], moment: int) -> bool:
    """Between the two questions of one last look: the place was listed, and the catalog is asked. What a second catalog
    writes then is seen by the next look."""
    return action.startswith("second catalog") and calls[moment - 1 : moment + 1] == ["list", "catalog.pointer"]


def commit_an_orphan(world: World) -> None:
    """A writer that was away for long comes back and commits."""
    late = world.lake.root / "wh/db/t/data/late.parquet"
    if late.exists():
        world.table.refresh().add_files([f"file://{late}"])


def add_a_column(world: World) -> None:
    with world.table.refresh().update_schema() as change:
        change.add_column("more", StringType())


def drop_a_branch(world: World) -> None:
    world.table.refresh().manage_snapshots().remove_branch("side").commit()


ACTIONS: dict[str, Callable[[World], object]] = {
    "append": lambda world: world.table.append(40),
    "overwrite": lambda world: world.table.overwrite(41),
    "delete": lambda world: world.table.delete(4),
    "compaction": lambda world: world.table.overwrite(*[row["id"] for row in world.table.rows()]),
    "rollback": lambda world: world.table.rollback(world.table.in_order()[0]),
    "publish a staged snapshot": publish,
    "stage": lambda world: world.table.stage(42),
    "tag": lambda world: world.table.tag("racing", world.table.in_order()[0]),
    "branch": lambda world: world.table.branch("racing", world.table.in_order()[0]),
    "append to a branch": lambda world: world.table.append(43, branch="side"),
    "property": lambda world: world.table.set({"history.expire.min-snapshots-to-keep": "100"}),
    "no more collection": lambda world: world.table.set({"gc.enabled": "false"}),
    "statistics": lambda world: world.table.add_partition_statistics(world.table.current),
    "second expiry": lambda world: second_expiry_of(world.table),
    "old path again": re_add_path,
    "expired snapshot again": re_add_snapshot,
    "orphan is committed": commit_an_orphan,
    "column": add_a_column,
    "branch goes": drop_a_branch,
    "drop and create": drop_and_create,
    "move": move,
    "second catalog": take_over(1),
    "second catalog goes on": take_over(3),
    "second catalog expires": second_catalog_expires,
    "second catalog with an old state": take_over_an_old_state,
    "catalog set back": set_back,
}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_writers_action_before_any_call_of_a_cycle_loses_nothing(tmp_path, action, capsys, record_property):
    world = build(tmp_path)
    world.restore()
    counting = Meanwhile(None, lambda: None)
    assert await world.cycle(counting) == "done", "the campaign needs a cycle that deletes"
    ends: Counter[str] = Counter()
    lost: list[str] = []
    too_late = 0
    for moment in range(len(counting.calls)):
        world.restore()

        def act() -> None:
            ACTIONS[action](world)
            world.remember()

        faults = Meanwhile(moment, act)
        ends[await world.cycle(faults)] += 1
        calls = faults.calls  # of this cycle: by the names of files, batches and so calls may fall otherwise
        gone = [f"{action} before call {moment} ({calls[moment]}): {what}" for what in world.lost()]
        if gone and is_inside_a_look(action, calls, moment):
            too_late, gone = too_late + 1, []
        lost += gone
    record_property("combinations", sum(ends.values()))
    with capsys.disabled():
        told = f"{len(lost)} lost, {too_late} inside a last look"
        print(f"\n{action}: {sum(ends.values())} combinations, {dict(ends)}, {told}")
    assert not lost
