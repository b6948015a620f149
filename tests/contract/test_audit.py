"""The laws of the audit trail, on every store that can hold it."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from tests.builders.audits import KEY, REF, Shelf, a_run, batch, candidate, results_of, rows_of
from tests.builders.stores import StorageSpec

from lakesweep.audit import chain
from lakesweep.audit.chain import Segment
from lakesweep.audit.compact import Packer, pack, unpack
from lakesweep.model.errors import AuditFailed, StateError, Unavailable, UnknownTable, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.run import Outcome
from lakesweep.state.memory import MemoryStateStore
from lakesweep.state.schema import audits
from lakesweep.storage import memory
from lakesweep.storage.local import store
from lakesweep.storage.registry import open_deleter
from lakesweep.storage.s3.settings import S3Options

ODD = replace(REF, dataset="päper & co", name="ns.50% off?#1/it's")


@pytest.fixture
def local_shelf(tmp_path):
    return Shelf(Location.parse(str(tmp_path / "artifacts")))


@pytest.fixture
def memory_shelf():
    name = f"audit-{uuid.uuid4().hex}"
    yield Shelf(Location.parse(f"memory://{name}/some/place"))
    memory.forget(name)


@pytest.fixture
def s3_shelf(seaweedfs):
    bucket = f"audit-{uuid.uuid4().hex[:12]}"
    seaweedfs.create_bucket(bucket)
    spec = StorageSpec(s3=S3Options(endpoint_url=seaweedfs.endpoint_url, path_style=True))
    return Shelf(Location.parse(f"s3://{bucket}/lakesweep"), spec)


@pytest.fixture(params=["local", "memory", "s3"])
async def shelf(request):
    shelf = request.getfixturevalue(f"{request.param}_shelf")
    yield shelf
    await shelf.aclose()


async def kinds(shelf, run_id, table=None):
    return [record["record"] async for _, record in shelf.inspector.records(run_id, table)]


async def test_a_run_reads_back_in_order(shelf):
    await shelf.record_run()
    assert await kinds(shelf, "r1") == [
        "begin", "expiring", "expired", "delete", "delete", "spare", "deleted", "deleted",
        "delete", "delete", "already_gone", "failed", "end",
    ]  # fmt: skip


async def test_an_untouched_trail_has_no_fault(shelf):
    await shelf.record_run("r1")
    await shelf.record_run("r2")
    await shelf.record_run("r3", ODD)
    by_table = {found.table: found for found in await shelf.findings()}
    assert {name: (found.segments, found.runs) for name, found in by_table.items()} == {
        REF.label: (14, 2),
        ODD.label: (7, 1),
    }
    assert all(not found.faults and not found.remarks for found in by_table.values())


async def test_the_chain_goes_on_from_run_to_run(shelf):
    await shelf.record_run("r1")
    last = await shelf.state.audit_head(REF.label)
    await shelf.record_run("r2")
    first = await shelf.storage.read(chain.segment_place(shelf.artifacts, REF.label, last.last + 1))
    assert Segment.decode(first).previous == last.digest
    assert await shelf.state.get_audit("r2") == replace(
        await shelf.state.audit_head(REF.label), first=last.last + 1, last=2 * last.last
    )


async def test_a_missing_changed_or_cut_segment_is_named(shelf):
    await shelf.record_run("r1")
    place = chain.segment_place(shelf.artifacts, REF.label, 5)
    data = await shelf.storage.read(place)
    await shelf.writer.put(place, data[:-10], create_only=False)
    (found,) = await shelf.findings(REF.label)
    assert found.faults == [
        "segment 5: its checksum does not match: it was modified or truncated",
        "segment 6: it does not follow the segment before it",
    ]


async def test_a_trail_is_checked_and_shown_without_the_state_store(shelf):
    await shelf.record_run("r1")
    await shelf.record_run("r3", ODD)
    shelf.state = MemoryStateStore(shelf.clock)
    assert sorted((found.table, found.segments) for found in await shelf.findings()) == sorted(
        [(REF.label, 7), (ODD.label, 7)]
    )
    assert await shelf.faults() == []
    assert (await kinds(shelf, "r3", ODD.label))[-1] == "end"
    with pytest.raises(UnknownTable, match="'r3'"):
        await kinds(shelf, "r3")


async def test_a_new_state_store_takes_up_the_old_chain(shelf):
    await shelf.record_run("r1")
    shelf.state = MemoryStateStore(shelf.clock)
    await shelf.record_run("r2")
    (found,) = await shelf.findings()
    assert (found.segments, found.faults) == (14, [])


async def test_two_writers_at_once_never_fork_the_chain(shelf):
    trails = [shelf.trail(f"r{number}") for number in range(4)]
    rows = rows_of(candidate("s3://b/t/1.parquet"))
    await asyncio.gather(*(trail.deleting(batch(0, 1), rows_of(), rows) for trail in trails))
    await asyncio.gather(*(trail.end(a_run(trail.chain.run_id, outcome=Outcome.DONE)) for trail in trails))
    (found,) = await shelf.findings()
    assert (found.segments, found.runs, found.faults, found.remarks) == (8, 4, [], [])


async def test_a_segment_whose_header_was_lost_in_a_crash_is_taken_up(shelf):
    await shelf.record_run("r1")
    before = shelf.state

    class Crashes(MemoryStateStore):
        async def audit_head(self, table):
            return await before.audit_head(table)

        async def set_audit(self, header):
            raise StateError("gone")

    shelf.state = Crashes(shelf.clock)
    with pytest.raises(StateError):
        await shelf.trail("r2").end(a_run("r2", outcome=Outcome.DONE))
    shelf.state = before
    await shelf.trail("r3").end(a_run("r3", outcome=Outcome.DONE))
    (found,) = await shelf.findings()
    assert (found.segments, found.runs, found.faults) == (9, 3, [])
    assert (await shelf.state.get_audit("r3")).first == 9


async def test_a_run_that_began_nothing_leaves_one_segment(shelf):
    await shelf.trail().end(a_run(outcome=Outcome.REFUSED, reason="too much"))
    (found,) = await shelf.findings()
    assert (found.segments, found.remarks) == (1, [])
    assert await kinds(shelf, "r1") == ["begin", "end"]


async def test_concurrent_batches_of_one_run_are_all_recorded(shelf):
    trail = shelf.trail()
    await trail.begin(a_run())

    async def one(number):
        row = candidate(f"s3://b/t/{number}.parquet")
        await trail.deleting(batch(number, 1), rows_of(row), rows_of())
        await trail.deleted(batch(number, 1), results_of((row.path, "deleted")))

    await asyncio.gather(*map(one, range(12)))
    await trail.end(a_run(outcome=Outcome.DONE))
    (found,) = await shelf.findings()
    assert (found.segments, found.faults, found.remarks) == (25, [], [])
    told = await kinds(shelf, "r1")
    assert (told[0], told.count("begin"), told.count("deleted")) == ("begin", 1, 12)


class LateHeaders(MemoryStateStore):
    """Stores a run's first header only once the second one is there; or never."""

    def __init__(self, clock, *, lost=False):
        super().__init__(clock)
        self.lost = lost
        self.headers = 0
        self.second = asyncio.Event()

    async def set_audit(self, header):
        self.headers += 1
        if self.headers == 1:
            if self.lost:
                raise StateError("the state store is away")
            await self.second.wait()
        await super().set_audit(header)
        self.second.set()


@pytest.mark.parametrize("lost", [False, True])
async def test_headers_that_come_late_or_never_leave_the_run_whole(memory_shelf, lost):
    memory_shelf.state = LateHeaders(memory_shelf.clock, lost=lost)
    trail = memory_shelf.trail()
    await trail.begin(a_run())
    rows = [candidate(f"s3://b/t/{number}.parquet") for number in range(2)]
    told = await asyncio.gather(
        *(trail.deleting(batch(number, 1), rows_of(row), rows_of()) for number, row in enumerate(rows)),
        return_exceptions=True,
    )
    assert [type(one) for one in told if one is not None] == [StateError] * lost
    header = await memory_shelf.state.get_audit("r1")
    assert (header.first, header.last) == (1, 2)
    assert await kinds(memory_shelf, "r1") == ["begin", "delete", "delete"]
    (found,) = await memory_shelf.findings()
    assert found.faults == []


async def test_asking_for_what_is_not_there_says_so(shelf):
    with pytest.raises(UnknownTable, match="no audit records of 'acme/prod/none'"):
        await shelf.findings("acme/prod/none")
    with pytest.raises(UnknownTable, match="no audit records of run 'none'"):
        await kinds(shelf, "none")
    assert await shelf.findings() == []


async def test_showing_a_damaged_run_says_where(shelf):
    await shelf.record_run()
    place = chain.segment_place(shelf.artifacts, REF.label, 4)
    await shelf.writer.put(place, b"{}\n", create_only=False)
    with pytest.raises(Unreadable, match=r"0000000004\.jsonl"):
        await kinds(shelf, "r1")


# A store that fails


async def test_a_store_that_is_away_fails_the_record_with_its_reason(memory_shelf):
    def away(operation, address):
        if operation == "put":
            raise Unavailable(address, "connection refused")

    memory.bucket(memory_shelf.artifacts.authority).faults = away
    with pytest.raises(AuditFailed, match=r"cannot be written \(connection refused\): nothing is deleted without"):
        await memory_shelf.trail().end(a_run(outcome=Outcome.DONE))
    first, second = memory_shelf.pauses
    assert 0 <= first <= 1.0
    assert 0 <= second <= 2.0


async def test_a_lost_answer_does_not_record_twice(memory_shelf):
    lost = []

    def lose_one(operation, address):
        if operation == "put_answer" and not lost:
            lost.append(address)
            raise Unavailable(address, "no answer in time")

    memory.bucket(memory_shelf.artifacts.authority).faults = lose_one
    await memory_shelf.record_run()
    (found,) = await memory_shelf.findings()
    assert lost
    assert (found.segments, found.faults, found.remarks) == (7, [], [])


async def test_a_full_disk_fails_the_record_and_leaves_no_half_segment(local_shelf, monkeypatch):
    await local_shelf.trail().deleting(batch(0, 1), rows_of(), rows_of(candidate("s3://b/t/1")))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(store.os, "fsync", full)
        with pytest.raises(AuditFailed, match="No space left on device"):
            await local_shelf.trail().deleting(batch(0, 1), rows_of(candidate("s3://b/t/1")), rows_of())
    (found,) = await local_shelf.findings()
    assert (found.segments, found.faults) == (1, [])


def planted(shelf, number, previous=None, key=None):
    """A segment with a valid seal that says nothing was deleted."""
    segment = Segment(
        table=REF.label,
        number=number,
        previous=previous,
        run_id="r9",
        at=shelf.clock.now(),
        records=({"record": "end"},),
    )
    return segment.encode(key)


@pytest.mark.parametrize("key", [None, b"another installation's"])
async def test_a_planted_segment_is_passed_over_and_reported(shelf, key):
    await shelf.record_run("r1")
    head = await shelf.state.audit_head(REF.label)
    place = chain.segment_place(shelf.artifacts, REF.label, head.last + 1)
    await shelf.writer.put(place, planted(shelf, head.last + 1, head.digest, key), create_only=True)
    await shelf.record_run("r2")
    next_one = await shelf.storage.read(chain.segment_place(shelf.artifacts, REF.label, head.last + 2))
    assert (Segment.decode(next_one).previous, Segment.decode(next_one).passed_over) == (head.digest, 1)
    (fault,) = await shelf.faults()
    assert fault.startswith(f"segment {head.last + 1}: it is {'signed with another key' if key else 'not signed'}")


async def test_a_trail_of_an_older_version_goes_on_with_signatures(shelf):
    shelf.key = None
    await shelf.record_run("r1")
    shelf.key = KEY
    await shelf.record_run("r2")
    (found,) = await shelf.findings()
    assert (found.segments, found.faults) == (14, [])


async def test_a_whole_trail_made_anew_with_another_key_is_reported(shelf):
    shelf.key = b"another installation's"
    await shelf.record_run("r1")
    shelf.key = KEY
    assert len(await shelf.faults()) == 7


async def test_a_segment_of_another_writer_with_our_key_is_taken_up(shelf):
    await shelf.record_run("r1")
    before = await shelf.state.audit_head(REF.label)
    await shelf.record_run("r2")
    await shelf.state.database.run(  # the second run's header never arrived
        lambda connection: connection.execute(sa.delete(audits).where(audits.c.run_id != before.run_id))
    )
    await shelf.record_run("r3")
    assert await shelf.faults() == []


def packer(shelf):
    deleter = open_deleter(shelf.spec)

    async def remove(paths):
        await deleter.delete(paths)

    return Packer(artifacts=shelf.artifacts, key=shelf.key, storage=shelf.storage, writer=shelf.writer, remove=remove)


async def test_packed_segments_read_back_and_verify_as_before(shelf):
    await shelf.record_run("r1")
    await shelf.record_run("r2")
    before = await kinds(shelf, "r1")
    numbers = await shelf.inspector.unpacked(REF.label)
    packed = await packer(shelf).pack(REF.label, numbers, shelf.clock.now() + timedelta(days=1))
    assert (packed.segments, await shelf.inspector.unpacked(REF.label)) == (13, [14])
    assert packed.bytes_after < packed.bytes_before
    (found,) = await shelf.findings()
    assert (found.segments, found.runs, found.faults) == (14, 2, [])
    assert await kinds(shelf, "r1") == before
    await shelf.record_run("r3")
    assert await shelf.faults() == []


async def test_only_old_and_whole_segments_are_packed(shelf):
    await shelf.record_run("r1")
    place = chain.segment_place(shelf.artifacts, REF.label, 3)
    await shelf.writer.put(place, (await shelf.storage.read(place))[:-5], create_only=False)
    numbers = await shelf.inspector.unpacked(REF.label)
    assert (await packer(shelf).pack(REF.label, numbers, shelf.clock.now() - timedelta(days=1))).segments == 0
    assert (await packer(shelf).pack(REF.label, numbers, shelf.clock.now() + timedelta(days=1))).segments == 2
    assert await shelf.inspector.unpacked(REF.label) == [3, 4, 5, 6, 7]


async def test_a_pack_that_was_changed_is_reported(shelf):
    await shelf.record_run("r1")
    numbers = await shelf.inspector.unpacked(REF.label)
    await packer(shelf).pack(REF.label, numbers, shelf.clock.now() + timedelta(days=1))
    place = chain.directory(shelf.artifacts, REF.label).join("packed-0000000001-0000000006.parquet")
    held = unpack(await shelf.storage.read(place))
    held[2] = held[2].replace(b"s3://lake", b"s3://LAKE") if b"s3://lake" in held[2] else held[2][:-3]
    await shelf.writer.put(place, pack(held), create_only=False)
    assert any(fault.startswith("segment 2:") for fault in await shelf.faults())


async def test_a_trail_written_anew_does_not_fit_its_anchors(shelf):
    shelf.anchor = shelf.artifacts.join("locked")
    await shelf.record_run("r1")
    await shelf.record_run("r2")
    assert await shelf.faults() == []
    for number in range(1, 15):
        place = chain.segment_place(shelf.artifacts, REF.label, number)
        await open_deleter(shelf.spec).delete([place.raw])
    shelf.state = MemoryStateStore(shelf.clock)
    await shelf.record_run("r1")
    faults = await shelf.faults()
    assert "segment 7 is not the one that was anchored" in faults
    assert "segment 14 is missing" in faults
