"""Wrappers forward every method of their port and add exactly one concern; readers cannot delete."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from lakesweep.engines.manifest_cache import FingerprintCache
from lakesweep.formats.markers import IMMUTABLE_LISTS
from lakesweep.model.errors import NotFound, OutsideRoot, StorageError, TooLarge, Unavailable
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleter, Marker, Move
from lakesweep.ports.storage import Storage, Writer
from lakesweep.retry import Backoff
from lakesweep.storage import memory, read_cache, registry
from lakesweep.storage.local.deleter import LocalDeleter
from lakesweep.storage.local.store import LocalStorage, LocalWriter
from lakesweep.storage.memory import MemoryDeleter, MemoryStorage, MemoryWriter
from lakesweep.storage.read_cache import CachedReads, ReadCache
from lakesweep.storage.registry import open_deleter, open_storage
from lakesweep.storage.s3.deleter import S3Deleter
from lakesweep.storage.s3.store import S3Storage, S3Writer
from lakesweep.storage.spec import Confine, StorageSpec
from lakesweep.storage.wrappers import ConfinedStorage, DeadlineStorage, LimitedStorage, RetryingStorage, RetryingWriter
from lakesweep.telemetry.requests import RequestCount, counting

SIDES = {
    Storage: [
        *(RetryingStorage, LimitedStorage, DeadlineStorage, ConfinedStorage, CachedReads, registry._RoutedStorage),
        *(LocalStorage, MemoryStorage, S3Storage),
    ],
    Deleter: [registry._RoutedDeleter, LocalDeleter, MemoryDeleter, S3Deleter],
    Writer: [RetryingWriter, registry._RoutedWriter, LocalWriter, MemoryWriter, S3Writer],
}


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if callable(getattr(kind, name)) and not name.startswith("_")}


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


async def test_every_answer_to_a_delete_or_a_move_is_a_sign_of_life(bucket, place, monkeypatch):
    signs = []
    monkeypatch.setattr(registry.activity, "touch", lambda: signs.append(1))
    deleter, mover = open_deleter(StorageSpec()), registry.open_mover(StorageSpec())
    move = Move(source=place.raw, target=f"memory://{bucket.name}/trash/a")
    assert [one.status for one in await mover.to_trash([move])] == ["deleted"]
    await mover.back([move])
    await mover.uncover([Marker(path=place.raw, version="1")])
    await deleter.delete([place.raw])
    assert len(signs) == 4
    await deleter.delete([place.raw, "file:///none/such"])
    assert len(signs) == 6  # one for each store


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
    assert [(one.path, one.status) for one in await deleter.delete(asked)] == list(
        zip(asked, ["deleted", "deleted", "already_gone"], strict=True)
    )


MARK = b"0123456789abcdef"
WHOLE = b"Obj\x01header" + MARK + b"rows" + MARK
ONE = "4afb978d-a557-4078-ac61-c99aa6d9ca7e"


def cached_in(cache):
    return ReadCache(immutable_names=IMMUTABLE_LISTS, open=lambda: cache)


@pytest.mark.parametrize(
    ("name", "data", "times"),
    [
        (f"snap-7-1-{ONE}.avro", WHOLE, 1),
        (f"manifest-list-{ONE}-2", WHOLE, 1),
        (f"index-manifest-{ONE}-0", WHOLE, 1),
        (f"snap-7-1-{ONE}.avro", WHOLE[:-3], 2),  # cut short: the next reader may have more luck
        (f"snap-7-1-{ONE}.avro", WHOLE + bytes(read_cache.MOST_BYTES) + MARK, 2),
        (f"{ONE}-m0.avro", WHOLE, 2),  # engines have a cache of their own for manifests
        (f"00001-{ONE}.metadata.json", WHOLE, 2),
        ("snap-7-1-a.avro", WHOLE, 2),  # a name that may be given again
        ("manifest-list-0", WHOLE, 2),
    ],
)
async def test_only_a_whole_list_that_never_changes_is_fetched_once(bucket, tmp_path, name, data, times):
    bucket.objects[name] = memory.Held(data=data, modified_at=datetime.now(UTC))
    place, sent = Location("memory", bucket.name, name), RequestCount()
    with counting(sent):
        for _ in range(2):  # each with a cache of its own on the same disk, as two processes have
            cache = FingerprintCache(tmp_path / "cache", limit_bytes=2**30, key=b"k")
            storage = open_storage(StorageSpec(), cached_in(cache))
            assert await storage.read(place) == data
    assert (sent.so_far.get, sent.not_again.get) == (times, 2 - times)
    another = FingerprintCache(tmp_path / "cache", limit_bytes=2**30, key=b"another installation's")
    assert another.load_object(place.raw) is None


async def test_what_may_not_be_read_is_not_cached_either(bucket, tmp_path):
    name = f"snap-7-1-{ONE}.avro"
    bucket.objects[name] = memory.Held(data=WHOLE, modified_at=datetime.now(UTC))
    place, cache = Location("memory", bucket.name, name), FingerprintCache(tmp_path, limit_bytes=2**30, key=b"k")
    cache.store_object(place.raw, WHOLE)
    confined = StorageSpec(confine=Confine(places=(Location("memory", bucket.name, "elsewhere"),)))
    with pytest.raises(OutsideRoot):
        await open_storage(confined, cached_in(cache)).read(place)
    with pytest.raises(TooLarge):
        await open_storage(StorageSpec(max_bytes=3), cached_in(cache)).read(place)
