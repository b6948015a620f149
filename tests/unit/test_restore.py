"""In which order files come back, and what a restore does when a call fails."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.builders.audits import ABOUT, KEY, NOON, REF, TickingClock, a_run, candidate, rows_of
from tests.builders.cycles import AlwaysOurs

from lakesweep.audit.trail import ChainWriter, Trail
from lakesweep.cleanup import plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.restore import Restore
from lakesweep.cleanup.restore_finder import NO_MARKER, Finder, Taken, matches
from lakesweep.model.errors import Refused, Unavailable
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.model.trash import RunTrash
from lakesweep.ports.state import BatchRecord, BatchState, PlanHeader
from lakesweep.state.memory import MemoryStateStore
from lakesweep.storage import memory
from lakesweep.storage.registry import open_mover, open_storage, open_writer
from lakesweep.storage.spec import StorageSpec


class Bench:
    """A run that took some files, all of them in the trash, and their restore."""

    def __init__(self, tmp_path, files):
        self.bucket = memory.bucket(f"lake-{uuid.uuid4().hex}")
        self.root = Location("memory", self.bucket.name, "w")
        self.trash = RunTrash(place=self.root.join(".lakesweep-trash"), root=self.root, run_id="r1")
        self.asked = []
        self.tmp_path = tmp_path
        rows = self.rows = sorted(
            (candidate(self.at(name), len(name), stage=stage) for name, stage in files),
            key=lambda row: (row.stage, row.path),
        )
        self.rows_path = str(tmp_path / "plans" / "r1.parquet")
        with plan_file.PlanWriter(self.rows_path) as plan:
            plan.write(rows_of(*rows))
        stages = sorted({row.stage for row in rows})
        firsts = [next(at for at, row in enumerate(rows) if row.stage == stage) for stage in stages]
        self.batches = [
            BatchRecord(
                run_id="r1",
                number=number,
                first=first,
                count=sum(row.stage == stage for row in rows),
                state=BatchState.DONE,
                fencing_token=1,
            )
            for number, (stage, first) in enumerate(zip(stages, firsts, strict=True))
        ]
        for name, _ in files:
            key = Location.parse(self.trash.address(self.at(name))).path
            self.bucket.objects[key] = memory.Held(data=name.encode(), modified_at=NOON)
        self.bucket.faults = lambda operation, address: self.asked.append((operation, address))

    def at(self, name):
        return self.root.join(name).raw

    def taken(self, **changes):
        header = PlanHeader(
            run_id="r1",
            table=REF.label,
            head="h",
            digest="d",
            rows_path=self.rows_path,
            candidates=len(self.rows),
            bytes=1,
            created_at=NOON,
        )
        whole = Taken(run_id="r1", root=self.root, plan=header, batches=self.batches, trash=self.trash, markers={})
        return replace(whole, **changes)

    async def restore(self, patterns=(), **changes):
        clock = TickingClock()
        state = MemoryStateStore(clock)
        lease = await state.acquire_lease(REF.label, "bench", timedelta(hours=1))
        spec = StorageSpec()
        audit = Trail(
            chain=ChainWriter(
                artifacts=Location.parse(str(self.tmp_path)),
                table=REF.label,
                run_id="r2",
                key=KEY,
                storage=open_storage(spec),
                writer=open_writer(spec),
                state=state,
                clock=clock,
            ),
            about=ABOUT,
        )

        async def note(result):
            self.noted = result

        restore = Restore(
            run_id="r2",
            finder=Finder(
                taken=self.taken(**changes),
                patterns=patterns,
                storage=open_storage(spec),
                artifacts=Artifacts(self.tmp_path),
            ),
            mover=open_mover(spec),
            journal=state,
            audit=audit,
            fence=AlwaysOurs(lease.token),
            stop=asyncio.Event(),
            note=note,
        )
        await state.start_run(a_run("r2"))
        return await restore.run(), restore

    @property
    def came_back(self):
        before = self.root.as_directory().raw
        return [address.removeprefix(before) for operation, address in self.asked if operation == "copy"]


async def test_what_readers_enter_by_comes_back_last_and_the_newest_first(tmp_path):
    files = [("log/1", -9), ("log/2", -9), ("log/3", -8), ("data/a", 0), ("manifest/b", 1), ("list/c", 2)]
    bench = Bench(tmp_path, files)
    result, _ = await bench.restore()
    assert bench.came_back == ["data/a", "manifest/b", "list/c", "log/3", "log/2", "log/1"]
    assert result.restored == Tally(files=6, bytes=sum(len(name) for name, _ in files))


async def test_what_the_store_does_not_bring_back_is_reported_and_stays_in_trash(tmp_path):
    bench = Bench(tmp_path, [("a", 0), ("b", 0)])

    def fails(operation, address):
        if operation == "copy" and address.endswith("/a"):
            raise Unavailable(address, "on purpose")

    bench.bucket.faults = fails
    result, restore = await bench.restore()
    assert (result.restored.files, result.not_restorable, len(restore.failed)) == (1, 1, 1)
    assert result.examples[0].why == "on purpose"
    assert Location.parse(bench.trash.address(bench.at("a"))).path in bench.bucket.objects
    bench.bucket.faults = None
    again, _ = await bench.restore()
    assert (again.restored.files, again.already_there) == (1, 1)


async def test_nothing_opens_to_readers_if_a_file_it_needs_did_not_come_back(tmp_path):
    bench = Bench(tmp_path, [("t/snapshot/snapshot-1", -9), ("a", 0), ("b", 0)])

    def fails(operation, address):
        if operation == "copy" and address.endswith("/a"):
            raise Unavailable(address, "on purpose")

    bench.bucket.faults = fails
    result, _ = await bench.restore()
    assert (result.restored.files, result.not_restorable) == (1, 2)
    assert f"{bench.at('a')} is not there" in result.examples[-1].why
    bench.bucket.faults = None
    again, _ = await bench.restore()
    assert (again.restored.files, again.already_there) == (2, 1)


async def test_a_half_emptied_trash_opens_nothing_to_readers(tmp_path):
    bench = Bench(tmp_path, [("t/snapshot/snapshot-1", -9), ("a", 0)])
    del bench.bucket.objects[Location.parse(bench.trash.address(bench.at("a"))).path]
    result, restore = await bench.restore()
    assert (result.restored.files, result.not_restorable, bench.came_back) == (0, 2, [])
    assert (await restore.finder.plan()).not_restorable == 2


async def test_a_file_that_another_run_took_later_keeps_the_snapshots_shut(tmp_path):
    bench = Bench(tmp_path, [("t/snapshot/snapshot-1", -9), ("a", 0)])
    result, _ = await bench.restore(batches=bench.batches[:1])
    assert (result.not_restorable, bench.came_back) == (1, [])


async def test_after_a_snapshot_that_fails_no_older_one_comes_back(tmp_path):
    bench = Bench(tmp_path, [(f"t/snapshot/snapshot-{number}", number - 9) for number in (1, 2, 3)])

    def fails(operation, address):
        if operation == "copy" and address.endswith("-2"):
            raise Unavailable(address, "on purpose")

    bench.bucket.faults = fails
    result, _ = await bench.restore()
    assert (result.restored.files, result.not_restorable) == (1, 2)


@pytest.mark.parametrize(
    ("there", "comes"),
    [((), True), ((4, 5), True), ((2, 4), True), ((5, 6), False), ((1,), False), ((0,), False)],
)
async def test_snapshots_come_back_only_where_they_join_what_is_there(tmp_path, there, comes):
    """Without a gap, and never as a newer one than the newest."""
    bench = Bench(tmp_path, [(f"t/snapshot/snapshot-{number}", number - 9) for number in (1, 2, 3)])
    for number in there:
        name = f"t/snapshot/snapshot-{number}"
        key = Location.parse(bench.at(name)).path
        bench.bucket.objects[key] = memory.Held(data=name.encode(), modified_at=NOON)
    result, _ = await bench.restore()
    assert bool(result.restored.files) is comes
    if comes:
        assert result.not_restorable == 0


@pytest.mark.parametrize("trashed", [True, False])
async def test_a_versioned_object_without_a_known_marker_is_not_called_gone(tmp_path, trashed):
    bench = Bench(tmp_path, [("a", 0)])
    bench.bucket.objects.clear()
    result, restore = await bench.restore(versioned=True, **({} if trashed else {"trash": None}))
    planned = await restore.finder.plan()
    for told in (result, planned):
        assert told.examples[0].why == NO_MARKER
        assert "list the versions" in told.examples[0].why


async def test_nothing_outside_the_root_is_brought_back(tmp_path):
    bench = Bench(tmp_path, [("a", 0)])
    with pytest.raises(Refused, match="outside the tenant's root"):
        await bench.restore(root=Location("memory", bench.bucket.name, "w/elsewhere"))
    assert bench.came_back == []


@pytest.mark.parametrize(
    ("pattern", "does"),
    [("*.parquet", True), ("s3://b/t/data/x.parquet", True), ("data/*", True), ("x.parquet", True), ("t", False)],
)
def test_a_glob_is_compared_with_the_address_its_end_and_its_name(pattern, does):
    assert matches("s3://b/t/data/x.parquet", pattern) is does
