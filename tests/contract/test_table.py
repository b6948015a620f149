"""What every format's table promises. The three formats, a made-up one and the simulator's catalogs run one suite."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import made_up_format
from tests.builders.delta import NOW, DeltaWriter, MemoryPlace, SetClock, days_ago
from tests.builders.delta import open_table as open_delta
from tests.builders.iceberg import Lake, later
from tests.builders.made_up_format import LEDGER, LedgerTable, LedgerWriter
from tests.builders.paimon_model import ModelTable
from tests.sim.formats.iceberg import IcebergModel
from tests.sim.ports import Process, SimStorage
from tests.sim.product import open_format, table_ref
from tests.sim.world import START, Rules, World

from lakesweep.cleanup import addresses
from lakesweep.formats import registry
from lakesweep.formats.paimon.table import PaimonTable
from lakesweep.formats.spec import Tools
from lakesweep.model.errors import CatalogUnavailable, Indeterminate, LeaseLost, Refused
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.table import MatchBy
from lakesweep.storage.memory import MemoryStorage, MemoryWriter, bucket

POLICY = CleanupPolicy(max_snapshot_age=timedelta(days=5), min_snapshots_to_keep=1)
OURS = (Refused, Indeterminate, CatalogUnavailable)
"""What `load` may raise."""


class Fence:
    """A lease that holds. Something may happen when it is asked, once."""

    def __init__(self, happens=None):
        self._happens = [happens] if happens else []

    async def check(self):
        while self._happens:
            await asyncio.to_thread(self._happens.pop())


class Lost:
    async def check(self):
        raise LeaseLost("somebody else has it")


class IcebergSubject:
    """Snapshots that are two months old."""

    storage = None

    def __init__(self, home: Path):
        self.lake = Lake.make(home)
        self.table = self.lake.create()
        self.table.history((1, 2, 3))
        self.now, self._next = later(days=60), 4

    async def open(self):
        return await self.table.open()

    def commit(self):
        self.table.append(self._next)
        self._next += 1

    def live(self):
        return {Location.parse(task.file.file_path).match_key for task in self.table.refresh().scan().plan_files()}

    def stored(self):
        return self.lake.files()

    def damage(self):
        Path(Location.parse(self.table.refresh().metadata_location).path).write_bytes(b"{")

    async def read(self, location):
        return Path(location.path).read_bytes()


class InMemory:
    """A table in the store in memory."""

    now = NOW

    def __init__(self):
        self.place = MemoryPlace()
        bucket(self.place.bucket).clock = lambda: NOW
        self.storage = MemoryStorage()

    def stored(self):
        return self.place.names()

    async def read(self, location):
        return await self.storage.read(location)


class DeltaSubject(InMemory):
    """Versions below a checkpoint that is past the log's retention."""

    def __init__(self, _home: Path):
        super().__init__()
        self.writer = DeltaWriter(self.place)
        self.writer.create(days_ago(80))
        self.writer.add("a.parquet", "b.parquet", at=days_ago(70))
        self.writer.checkpoint(at=days_ago(60))
        self.writer.remove("a.parquet", at=days_ago(50))
        self.writer.checkpoint(at=days_ago(40))
        self._next = 0

    async def open(self):
        return open_delta(self.writer, self.storage, SetClock(NOW))

    def commit(self):
        self._next += 1
        self.writer.add(f"new-{self._next}.parquet", at=NOW)

    def live(self):
        names = {"b.parquet", *(f"new-{number + 1}.parquet" for number in range(self._next))}
        return {self.place.location.join(name).match_key for name in names}

    def damage(self):
        newest = max(name for name in self.place.names() if name.endswith(".json"))
        self.place.put(newest, b"{", NOW)


class PaimonSubject(InMemory):
    """Snapshots of a day ago: the age that its own default keeps is an hour."""

    def __init__(self, _home: Path):
        super().__init__()
        self.place = MemoryPlace(bucket=uuid.uuid4().hex, prefix="wh/d.db/t")
        bucket(self.place.bucket).clock = lambda: NOW
        options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
        self.table = ModelTable(bucket(self.place.bucket), self.place.prefix, NOW - timedelta(days=1), options)
        self.table.append("a")
        self.table.overwrite("a")
        self.table.append("b")

    async def open(self):
        ref = TableRef(tenant=TenantId("t"), dataset="d", name="t", format=FormatName.PAIMON)
        place = Location.parse(self.table.address)
        return PaimonTable(ref=ref, location=place, storage=self.storage, tenant_root=place, writer=MemoryWriter())

    def commit(self):
        self.table.append("c")

    def live(self):
        newest = max(int(name.rpartition("-")[2]) for name in self.stored() if name.startswith("snapshot/snapshot-"))
        return {
            name.rpartition("/")[2] for name in self.table.needs[f"snapshot/snapshot-{newest}"] if "bucket-" in name
        }

    def damage(self):
        newest = max(name for name in self.place.names() if name.startswith("snapshot/snapshot-"))
        self.place.put(newest, b"{", NOW)


class LedgerSubject(InMemory):
    """The made-up format."""

    def __init__(self, _home: Path):
        super().__init__()
        self.writer = LedgerWriter(place=self.place)
        self.writer.commit("a.data", at=days_ago(40))
        self.writer.commit("a.data", "b.data", at=days_ago(30))
        self.writer.commit("b.data", "c.data", at=days_ago(20))
        self._files = ["b.data", "c.data"]

    async def open(self):
        ref = TableRef(tenant=TenantId("t"), dataset="d", name="t", format=LEDGER)
        tools = Tools(storage=self.storage, clock=SetClock(NOW), writer=MemoryWriter())
        return LedgerTable(ref=ref, location=self.place.location, tools=tools)

    def commit(self):
        self._files = [*self._files, f"{uuid.uuid4().hex}.data"]
        self.writer.commit(*self._files, at=NOW)

    def live(self):
        return {self.place.location.join(name).match_key for name in self._files}

    def damage(self):
        self.place.put("_ledger/9.head", b"{", NOW)


class SimulatedSubject:
    """Iceberg with the simulator's catalog, which applies commits as a REST server does."""

    client = False
    now = START + timedelta(days=60)

    def __init__(self, _home: Path):
        self.world = World(rules=Rules(max_snapshot_age=POLICY.max_snapshot_age.total_seconds() / 3600))
        self.model = IcebergModel(self.world)
        self.model.client = self.client
        self.model.begin()
        for _ in range(3):
            self.world.advance(timedelta(hours=1))
            self.commit()
        self.world.now = self.now
        self.process = Process(self.world)
        self.storage = SimStorage(self.process)

    async def open(self):
        return await open_format(self.model, self.process).open(table_ref(self.model))

    def commit(self):
        self.model.append()

    def live(self):
        view = self.model.table.current
        return {Location.parse(one.path).match_key for one in view.snapshots[view.refs["main"].snapshot_id].live}

    def stored(self):
        return sorted(self.world.objects)

    def damage(self):
        self.world.put(self.model.table.current.path, b"{", "an accident")

    async def read(self, location):
        return await self.storage.read(location)


class SimulatedSwapSubject(SimulatedSubject):
    """The same with one that only swaps a pointer."""

    client = True


FORMATS = {
    FormatName.ICEBERG: IcebergSubject,
    FormatName.DELTA: DeltaSubject,
    FormatName.PAIMON: PaimonSubject,
}
assert FORMATS.keys() == set(FormatName), "a format without this suite"
SUBJECTS = (*FORMATS.values(), LedgerSubject, SimulatedSubject, SimulatedSwapSubject)


@pytest.fixture(params=SUBJECTS, ids=lambda one: one.__name__[:-7])
def subject(request, tmp_path, monkeypatch):
    monkeypatch.setitem(registry.FORMATS, LEDGER, made_up_format.__name__)
    return request.param(tmp_path / "lake")


def ids(snapshots):
    return [one.id for one in snapshots]


async def test_the_head_stands_still_until_somebody_commits(subject):
    table = await subject.open()
    head = await table.head()
    assert (await table.load()).head == head
    assert await table.head() == head
    assert await (await subject.open()).head() == head
    subject.commit()
    assert await table.head() != head


async def test_an_earlier_head_is_loaded_as_it_was_or_not_at_all(subject):
    table = await subject.open()
    before = await table.load()
    subject.commit()
    now = await table.load()
    earlier = await table.load_at(before.head, now)
    assert earlier is None or (earlier.head, ids(earlier.snapshots)) == (before.head, ids(before.snapshots))
    assert await table.load_at(f"{before.head}-that-never-was", now) is None


async def test_planning_an_expiry_changes_nothing_and_can_be_repeated(subject):
    table, before = await subject.open(), subject.stored()
    view = await table.load()
    plan = view.plan_expiry(POLICY, subject.now)
    assert plan == view.plan_expiry(POLICY, subject.now)
    assert plan.head == view.head == await table.head()
    assert plan.expire
    assert set(ids(plan.expire)) <= set(ids(view.snapshots))
    assert not {one.id for one in plan.keep} & set(ids(plan.expire))
    assert subject.stored() == before


@pytest.mark.parametrize("expires", [False, True])
async def test_references_are_whole_and_disjoint(subject, expires):
    table = await subject.open()
    view = await table.load()
    plan = view.plan_expiry(POLICY, subject.now) if expires else ExpiryPlan(head=view.head)
    found = await view.references(plan)
    match_by = view.layout.match_by
    assert not {*addresses.match_key_list(found.kept, match_by)} & {*addresses.match_key_list(found.expired, match_by)}
    places = [source.location for source in found.sources]
    assert len(places) == len(set(places))
    spelled = list(found.kept)
    for source in found.sources:
        if source.retained:
            batch = registry.decoder(source.format)(source, await subject.read(source.location))
            spelled += batch.column("path").to_pylist()
    kept = {*addresses.match_key_list(spelled, match_by)} - {
        *addresses.match_key_list([one for one in found.released if one not in found.kept], match_by)
    }
    assert subject.live()
    assert subject.live() <= kept
    assert match_by in (MatchBy.ADDRESS, MatchBy.NAME)


async def test_a_commit_that_comes_first_is_kept_and_the_expiry_still_happens(subject):
    table = await subject.open()
    view = await table.load()
    planned = view.plan_expiry(POLICY, subject.now)
    after, committed = await table.commit_expiry(view, POLICY, subject.now, Fence(subject.commit))
    assert set(ids(planned.expire)) <= set(ids(committed.expire))
    fresh = await table.load()
    found = await fresh.references(committed)
    assert found.retained
    assert after.table_uuid == fresh.table_uuid == view.table_uuid


async def test_a_second_commit_of_the_expiry_changes_nothing(subject):
    table = await subject.open()
    view = await table.load()
    first, committed = await table.commit_expiry(view, POLICY, subject.now, Fence())
    stored = subject.stored()
    second, again = await table.commit_expiry(first, POLICY, subject.now, Fence())
    assert ids(second.snapshots) == ids(first.snapshots)
    assert second.head == first.head
    assert set(ids(again.expire)) <= set(ids(committed.expire))
    assert subject.stored() == stored


async def test_nothing_is_committed_once_the_lease_is_lost(subject):
    table = await subject.open()
    view, stored = await table.load(), subject.stored()
    with pytest.raises(LeaseLost):
        await table.commit_expiry(view, POLICY, subject.now, Lost())
    assert subject.stored() == stored
    assert ids((await (await subject.open()).load()).snapshots) == ids(view.snapshots)


async def test_what_follows_a_sweep_can_be_repeated(subject):
    table = await subject.open()
    view = await table.load()
    plan = ExpiryPlan(head=view.head)
    await table.after_sweep(view, plan)
    stored, head = subject.stored(), await table.head()
    await table.after_sweep(view, plan)
    assert (subject.stored(), await table.head()) == (stored, head)


async def test_an_unreadable_table_has_a_location_and_our_error(subject):
    location = (await (await subject.open()).load()).location
    subject.damage()
    table = await subject.open()
    with pytest.raises(OURS):
        await table.load()
    assert table.place() is not None
    assert table.place().match_key.rstrip("/") == location.match_key.rstrip("/")
