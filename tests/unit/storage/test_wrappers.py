"""Wrappers forward every method of their port and add exactly one concern; readers cannot delete."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.model.errors import NotFound, StorageError, Unavailable
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleter
from lakesweep.ports.storage import Storage, Writer
from lakesweep.retry import Backoff
from lakesweep.storage import memory, registry
from lakesweep.storage.local.deleter import LocalDeleter
from lakesweep.storage.local.store import LocalStorage, LocalWriter
from lakesweep.storage.memory import MemoryDeleter, MemoryStorage, MemoryWriter
from lakesweep.storage.registry import open_deleter, open_storage, open_writer
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.store import S3Storage, S3Writer
from lakesweep.storage.spec import StorageSpec
from lakesweep.storage.wrappers.deadline import DeadlineStorage
from lakesweep.storage.wrappers.limit import LimitedStorage
from lakesweep.storage.wrappers.meter import MeteredDeleter, MeteredStorage, MeteredWriter, Stats
from lakesweep.storage.wrappers.retry import RetryingStorage, RetryingWriter

SIDES = {
    Storage: [
        *(RetryingStorage, LimitedStorage, DeadlineStorage, MeteredStorage, registry._RoutedStorage),
        *(LocalStorage, MemoryStorage, S3Storage),
    ],
    Deleter: [MeteredDeleter, registry._RoutedDeleter, LocalDeleter, MemoryDeleter, S3Deleter],
    Writer: [RetryingWriter, MeteredWriter, registry._RoutedWriter, LocalWriter, MemoryWriter, S3Writer],
}


def methods(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}


@pytest.mark.parametrize(("port", "kind"), [(port, kind) for port, kinds in SIDES.items() for kind in kinds])
def test_every_class_has_the_methods_of_its_port_and_no_others(port, kind):
    assert methods(kind) == methods(port)


@pytest.fixture
def bucket():
    name = f"b-{uuid.uuid4().hex}"
    yield memory.bucket(name)
    memory.forget(name)


@pytest.fixture
def place(bucket):
    bucket.objects["t/a"] = memory.Held(data=b"data", modified_at=datetime.now(UTC))
    return Location("memory", bucket.name, "t/a")


def failing(bucket, times, error=Unavailable, operation=None):
    """Let the next calls fail; returns the list of calls seen."""
    calls: list[str] = []

    def fault(name, address):
        if operation in (None, name):
            calls.append(name)
            if len(calls) <= times:
                raise error(address, "on purpose")

    bucket.faults = fault
    return calls


def backoff(attempts=3):
    async def no_sleep(_: float) -> None:
        return None

    return Backoff(attempts, sleep=no_sleep)


@pytest.mark.parametrize("operation", ["read", "stat"])
async def test_reads_are_tried_again_while_the_store_is_unavailable(bucket, place, operation):
    storage = RetryingStorage(MemoryStorage(), backoff())
    failing(bucket, 2)
    assert await getattr(storage, operation)(place)
    calls = failing(bucket, 99)
    with pytest.raises(Unavailable):
        await getattr(storage, operation)(place)
    assert len(calls) == 3


async def test_what_cannot_change_is_not_tried_again(bucket, place):
    calls = failing(bucket, 99, error=NotFound)
    with pytest.raises(NotFound):
        await RetryingStorage(MemoryStorage(), backoff()).read(place)
    assert len(calls) == 1


async def test_a_listing_starts_over_only_before_its_first_batch(bucket, place):
    storage = RetryingStorage(MemoryStorage(), backoff())
    failing(bucket, 2, operation="list")
    assert [batch.num_rows async for batch in storage.list(place.__class__("memory", bucket.name, "t"))] == [1]
    for number in range(2500):
        bucket.objects[f"t/{number:05d}"] = memory.Held(data=b"", modified_at=None)
    pages = 0

    def second_page(name, address):
        nonlocal pages
        pages += name == "list_page"
        if pages == 2:
            raise Unavailable(address, "on purpose")

    bucket.faults = second_page
    seen = []
    async with aclosing(storage.list(Location("memory", bucket.name, "t"))) as batches:
        seen.append((await anext(batches)).num_rows)
        with pytest.raises(Unavailable):
            await anext(batches)
    assert seen == [1000]


async def test_only_overwrites_are_tried_again(bucket, place):
    writer = RetryingWriter(MemoryWriter(), backoff())
    failing(bucket, 2)
    await writer.put(place, b"new", create_only=False)
    calls = failing(bucket, 1)
    with pytest.raises(Unavailable):
        await writer.put(Location("memory", bucket.name, "t/b"), b"x", create_only=True)
    assert calls == ["put"]


async def test_pauses_grow_and_are_jittered():
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    waiting = Backoff(3, sleep=sleep)
    for failures in range(1, 12):
        await waiting.pause(failures)
    assert all(0 <= pause <= min(10, 0.2 * 2**at) for at, pause in enumerate(pauses))
    assert len(set(pauses)) > 5


class Slow(MemoryStorage):
    """Counts how many reads run at once."""

    running = most = 0

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        return b""


async def test_no_more_run_at_once_than_allowed(place):
    slow = Slow()
    storage = LimitedStorage(slow, 5)
    await asyncio.gather(*(storage.read(place) for _ in range(40)))
    assert slow.most == 5


async def test_reading_in_the_middle_of_a_listing_never_waits_for_itself(place):
    storage = LimitedStorage(MemoryStorage(), 1)
    async for batch in storage.list(Location("memory", place.authority, "t")):
        assert await storage.read(Location.parse(batch["path"][0].as_py())) == b"data"


class Hanging(MemoryStorage):
    """Answers the first batch of a listing and nothing else."""

    async def list(self, root):
        async with aclosing(super().list(root)) as batches:
            async for batch in batches:
                yield batch
        await asyncio.sleep(3600)

    async def read(self, location, limit=None):
        await asyncio.sleep(3600)

    stat = directories = read


@pytest.mark.parametrize("operation", ["read", "stat", "directories", "list"])
async def test_a_call_that_hangs_ends_in_time_and_is_not_tried_again(place, operation):
    async def tried_again(_):
        raise AssertionError("it was tried again")

    storage = RetryingStorage(DeadlineStorage(Hanging(), 0.05), Backoff(100, sleep=tried_again))

    async def listed(place):
        async with aclosing(storage.list(Location("memory", place.authority, "t"))) as batches:
            return [batch async for batch in batches]

    call = listed if operation == "list" else getattr(storage, operation)
    with pytest.raises(StorageError, match=r"no answer within 0\.05 s") as raised:
        await call(place)
    assert not isinstance(raised.value, Unavailable)


async def test_everything_is_counted(bucket, place):
    stats = Stats()
    spec = StorageSpec()
    storage, deleter, writer = open_storage(spec, stats), open_deleter(spec, stats), open_writer(spec, stats)
    await writer.put(Location("memory", bucket.name, "t/b"), b"12345", create_only=True)
    assert [batch.num_rows async for batch in storage.list(Location("memory", bucket.name, "t"))] == [2]
    await storage.read(place)
    await deleter.delete([place.raw, place.raw])
    bucket.faults = lambda _, address: (_ for _ in ()).throw(StorageError(address, "no"))
    await deleter.delete([place.raw])
    assert (stats.objects_listed, stats.bytes_read, stats.bytes_written) == (2, 4, 5)
    assert (stats.objects_deleted, stats.deletes_failed) == (1, 1)
    assert stats.calls == {"put": 1, "list": 1, "read": 1, "delete": 2}


async def test_the_earliest_clock_of_the_stores_in_use_counts(bucket, place, tmp_path):
    storage = open_storage(StorageSpec())
    early = datetime.now(UTC) - timedelta(hours=2)
    bucket.clock = lambda: early
    assert await storage.now() > early
    await storage.read(place)
    with pytest.raises(NotFound):
        await storage.read(Location("file", "", f"{tmp_path}/none"))
    assert await storage.now() == early
    await storage.aclose()


async def test_a_batch_over_several_stores_is_answered_in_the_order_asked(bucket, place, tmp_path):
    (tmp_path / "f").write_text("x")
    deleter = open_deleter(StorageSpec())
    asked = [f"file://{tmp_path}/f", place.raw, f"file://{tmp_path}/g"]
    assert [(one.path, one.fate) for one in await deleter.delete(asked)] == list(
        zip(asked, ["deleted", "deleted", "already_gone"], strict=True)
    )
