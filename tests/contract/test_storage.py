"""The laws of Storage, Deleter and Writer, on every store.

`seaweedfs` is a real server over HTTP. It keeps objects as files in directories, so it cannot hold a key with an
empty segment; `s3-stub` speaks the same protocol with AWS's own rules for keys, and closes that gap.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders.stores import ODD_NAMES, StorageSpec
from tests.sim.ports import Process, SimDeleter, SimStorage, SimWriter
from tests.sim.world import World

from lakesweep.model.errors import AlreadyThere, NotFound, SettingsError
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleter, DeleteStatus
from lakesweep.ports.storage import LISTING_SCHEMA, Storage, Writer
from lakesweep.storage import memory
from lakesweep.storage.registry import open_deleter, open_storage, open_writer


@dataclass(kw_only=True)
class Stores:
    """The three sides of one store and a place of its own in it."""

    kind: str
    root: Location
    spec: StorageSpec
    storage: Storage
    deleter: Deleter
    writer: Writer

    def at(self, name: str) -> Location:
        return Location(self.root.scheme, self.root.authority, self.root.as_directory().path + name)

    async def put(self, name: str, data: bytes = b"x") -> Location:
        await self.writer.put(self.at(name), data, create_only=False)
        return self.at(name)

    async def put_many(self, names: list[str]) -> None:
        limit = asyncio.Semaphore(32)

        async def one(name: str) -> None:
            async with limit:
                await self.put(name)

        await asyncio.gather(*map(one, names))

    async def listed(self, root: Location | None = None) -> list[dict]:
        rows: list[dict] = []
        async with aclosing(self.storage.list(root or self.root)) as batches:
            async for batch in batches:
                assert batch.schema == LISTING_SCHEMA
                rows += batch.to_pylist()
        return rows

    async def names(self, root: Location | None = None) -> list[str]:
        base = self.root.as_directory().raw
        return sorted(row["path"].removeprefix(base) for row in await self.listed(root))

    async def names_in_parts(self, wanted: int) -> list[str]:
        """The same, part by part."""
        base = self.root.as_directory().raw
        paths: list[str] = []
        for part in await self.storage.parts(self.root, wanted):
            async with aclosing(self.storage.list_part(part)) as batches:
                async for batch in batches:
                    assert batch.schema == LISTING_SCHEMA
                    paths += batch.column("path").to_pylist()
        return sorted(path.removeprefix(base) for path in paths)


def simulated(root: Location) -> Stores:
    """The simulator's, in a world whose clock stands."""
    process = Process(World(now=datetime.now(UTC)), page_rows=250, request_keys=300)
    return Stores(
        kind="simulated",
        root=root,
        spec=StorageSpec(),
        storage=SimStorage(process),
        deleter=SimDeleter(process),
        writer=SimWriter(process),
    )


@pytest.fixture
async def stores(store_place):
    root, spec = store_place.at("w/t1"), store_place.spec
    if store_place.kind == "simulated":
        yield simulated(root)
        return
    async with AsyncExitStack() as stack:
        opened = Stores(
            kind=store_place.kind,
            root=root,
            spec=spec,
            storage=open_storage(spec),
            deleter=open_deleter(spec),
            writer=open_writer(spec),
        )
        for side in (opened.storage, opened.deleter, opened.writer):
            stack.push_async_callback(side.aclose)
        yield opened


async def test_a_root_that_does_not_exist_has_no_parts_with_anything_in_them(stores):
    assert await stores.names_in_parts(10) == []


async def test_a_root_that_does_not_exist_lists_nothing(stores):
    assert await stores.listed() == []


async def test_only_the_directories_right_below_are_named(stores):
    assert list(await stores.storage.directories(stores.root)) == []
    await stores.put_many(["a", "db.db/t/schema/schema-0", "db.db/u/x", "k=v%3Dw/x", "ünï code/x", "db.db2/x"])
    await stores.put("data/x")
    elsewhere = Location(stores.root.scheme, stores.root.authority, f"{stores.root.path}0/other/x")
    await stores.writer.put(elsewhere, b"x", create_only=False)
    found = list(await stores.storage.directories(stores.root))
    assert found == sorted(["data", "db.db", "db.db2", "k=v%3Dw", "ünï code"])
    assert list(await stores.storage.directories(stores.at("db.db"))) == ["t", "u"]
    assert list(await stores.storage.directories(stores.at("db.db").as_directory())) == ["t", "u"]
    assert list(await stores.storage.directories(stores.at("a"))) == []


async def test_names_that_hold_objects_are_always_among_those_that_may(stores):
    names = ["_delta_log", "metadata", "schema", ".hoodie"]
    await stores.put_many([f"data/{number:04d}" for number in range(1100)])
    await stores.put_many(["data/metadata-1/x", "data/schema/schema-0", "schema0", "metadata/m/x", "_delta_log/0.json"])
    there = {"": {"_delta_log", "metadata"}, "data": {"schema"}, "nothing": set()}
    for directory, holding in there.items():
        place = stores.at(directory) if directory else stores.root
        found = await stores.storage.directories_among(place, names)
        assert holding <= set(found) <= set(names)
        assert set(found) == holding or stores.root.is_local


async def test_whatever_was_put_is_listed_and_nothing_of_it_is_irregular(stores):
    assert list(await stores.storage.irregular(stores.at("nothing/here"))) == []
    await stores.put_many(["db.db/t/a", "db.db/t/deep/b"])
    assert list(await stores.storage.irregular(stores.root)) == []


async def test_more_directories_than_a_page_holds_are_all_named(stores):
    names = [f"{number:04d}/x" for number in range(1100)]
    await stores.put_many(names)
    assert list(await stores.storage.directories(stores.root)) == [name[:4] for name in names]


async def test_an_object_is_listed_with_its_raw_address_size_and_time(stores):
    place = await stores.put("data/a.parquet", b"12345")
    (row,) = await stores.listed()
    assert row["path"] == place.raw
    assert row["size_bytes"] == 5
    assert row["modified_at"] is not None
    assert row["modified_at"].tzinfo is not None
    if stores.kind != "s3-stub":  # whose objects all have one time
        assert abs(row["modified_at"] - datetime.now(UTC)) < timedelta(minutes=2)


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 300_000], ids=["empty", "binary"])
async def test_what_is_written_is_what_is_read(stores, data):
    place = await stores.put("data/object", data)
    assert await stores.storage.read(place) == data


async def test_a_missing_object_is_not_found(stores):
    await stores.put("data/a")
    for name in ("data/b", "data", "data/a/b", "nothing/at/all"):
        with pytest.raises(NotFound) as caught:
            await stores.storage.read(stores.at(name))
        assert stores.at(name).raw in str(caught.value)
        with pytest.raises(NotFound):
            await stores.storage.stat(stores.at(name))


async def test_stat_and_list_agree(stores):
    place = await stores.put("data/a", b"123")
    (row,) = await stores.listed()
    found = await stores.storage.stat(place)
    assert (found.location, found.size_bytes, found.etag) == (place, row["size_bytes"], row["etag"])
    assert found.modified_at is not None
    assert abs(found.modified_at - row["modified_at"]) <= timedelta(seconds=1)


@pytest.mark.parametrize(("one", "other"), [(8, 9), (9, 10), (99, 100), (999, 1000)])
@pytest.mark.parametrize("name", ["_delta_log/{:020d}.json", "ünï code/snapshot-{}"])
async def test_two_objects_are_seen_in_one_look_whichever_is_there(stores, name, one, other):
    await stores.put_many([name.format(number) for number in range(max(0, one - 30), one)] + ["_delta_log/_sidecars/x"])
    places = stores.at(name.format(one)), stores.at(name.format(other))
    assert await stores.storage.stat_together(*places) == (None, None)
    await stores.put(name.format(one), b"123")
    seen, following = await stores.storage.stat_together(*places)
    assert following is None
    stated = await stores.storage.stat(places[0])
    assert (seen.location, seen.size_bytes, seen.etag) == (places[0], 3, stated.etag)
    assert abs(seen.modified_at - stated.modified_at) <= timedelta(seconds=1)
    await stores.put(name.format(other), b"4")
    assert [one.size_bytes for one in await stores.storage.stat_together(*places)] == [3, 1]
    await stores.deleter.delete([places[0].raw])
    assert (await stores.storage.stat_together(*places))[0] is None


@pytest.mark.parametrize("ending", ["", "/"])
async def test_a_root_never_lists_its_neighbours(stores, ending):
    await stores.put("a")
    for neighbour in ("w/t10/b", "w/t1.parquet", "w/t1-old/c", "w/t", "x/t1/d"):
        place = Location(stores.root.scheme, stores.root.authority, stores.root.path[: -len("w/t1")] + neighbour)
        await stores.writer.put(place, b"x", create_only=False)
    root = Location(stores.root.scheme, stores.root.authority, stores.root.path + ending)
    assert await stores.names(root) == ["a"]


async def test_a_whole_bucket_may_be_a_root(stores):
    if stores.kind == "local":
        pytest.skip("the whole disk is not the test's")
    place = await stores.put("a")
    rows = await stores.listed(Location(place.scheme, place.authority, ""))
    assert place.raw in [row["path"] for row in rows]


async def test_odd_names_survive_byte_for_byte(stores):
    names = [f"data/{name}" for name in ODD_NAMES] + [f"dir {name}/f" for name in ODD_NAMES]
    for name in names:
        await stores.put(name, name.encode())
    assert await stores.names() == await stores.names_in_parts(5) == sorted(names)
    for name in names:
        assert await stores.storage.read(stores.at(name)) == name.encode()
        assert (await stores.storage.stat(stores.at(name))).size_bytes == len(name.encode())
    answers = await stores.deleter.delete([row["path"] for row in await stores.listed()])
    assert {one.status for one in answers} == {DeleteStatus.DELETED}
    assert await stores.names() == []


async def test_empty_segments_are_names_of_their_own(stores):
    if stores.kind in ("local", "seaweedfs"):
        pytest.skip("keeps objects as files, so a//b is a/b")
    names = ["a//b", "a/b", "/lead", "lead", "a///b"]
    for name in names:
        await stores.put(name, name.encode())
    assert await stores.names() == await stores.names_in_parts(3) == sorted(names)
    await stores.deleter.delete([stores.at("a//b").raw, stores.at("/lead").raw])
    assert await stores.names() == ["a///b", "a/b", "lead"]
    assert await stores.storage.read(stores.at("a/b")) == b"a/b"


async def test_every_object_is_listed_once_across_pages(stores):
    names = [f"data/dt={day:02d}/part-{file:05d}.parquet" for day in range(3) for file in range(700)]
    names += [f"metadata/snap-{number:06d}.avro" for number in range(1100)] + ["top"]
    await stores.put_many(names)
    assert await stores.names() == sorted(names)
    for wanted in (1, 4, 40):
        assert await stores.names_in_parts(wanted) == sorted(names)
    assert len(await stores.storage.parts(stores.root, 4)) >= 4
    assert await stores.names(stores.at("data/dt=01")) == sorted(name for name in names if "dt=01" in name)


async def test_a_wide_level_is_divided_without_loss_whatever_the_stores_order(stores):
    """A server that lists directory by directory shows k001/f before k001-x/f; by key it is the other way round."""
    names = [f"k{number:03d}{ending}/f" for number in range(520) for ending in ("", "-x")]
    await stores.put_many(names)
    assert await stores.names_in_parts(6) == sorted(names)


async def test_a_listing_may_be_left_early(stores):
    await stores.put_many([f"data/{number:04d}" for number in range(1200)])
    async with aclosing(stores.storage.list(stores.root)) as batches:
        assert (await anext(batches)).num_rows > 0
    assert len(await stores.names()) == 1200


async def test_deleting_reports_every_path_in_the_order_asked(stores):
    await stores.put_many([f"data/{number:04d}" for number in range(1500)] + ["data/kept"])
    paths = [stores.at(f"data/{number:04d}").raw for number in range(1500)]
    paths = paths[::-1] + paths[:1]
    answers = await stores.deleter.delete(paths)
    assert [one.path for one in answers] == paths
    assert DeleteStatus.FAILED not in {one.status for one in answers}
    assert await stores.names() == ["data/kept"]


async def test_deleting_a_missing_object_never_fails_and_touches_nothing(stores):
    # S3 itself answers success for a missing key, so "deleted" is allowed: either way it is not there.
    await stores.put("data/a")
    (answer,) = await stores.deleter.delete([stores.at("data/b").raw])
    assert answer.status in (DeleteStatus.ALREADY_GONE, DeleteStatus.DELETED)
    assert await stores.names() == ["data/a"]


class Judged:
    """Conditions that know the etags or times of what was listed, and object to nothing."""

    def __init__(self, rows: list[dict]) -> None:
        self.etags = {row["path"]: row["etag"] for row in rows if row["etag"]}
        self.written_ms = {row["path"]: round(row["modified_at"].timestamp() * 1000) for row in rows if not row["etag"]}

    async def withheld(self, paths):
        return {}

    def ended(self):
        return None


async def test_an_object_written_anew_since_it_was_listed_stays(stores):
    """By its etag; a disk has none, there its time tells, also that of an older file that was moved there."""
    names = ["data/a", "data/b \x01", "data/c"]
    await stores.put_many(names)
    if stores.kind == "local":
        for name in names:
            os.utime(stores.at(name).path, (1_700_000_000, 1_700_000_000))
    listed = Judged(await stores.listed())
    for name in names[:2]:
        await stores.put(name, b"written anew")
    if stores.kind == "local":
        os.utime(stores.at(names[1]).path, (1_600_000_000, 1_600_000_000))
    answers = await stores.deleter.delete([stores.at(name).raw for name in names], listed)
    kept = names[:2]
    assert [one.status is DeleteStatus.SPARED for one in answers] == [name in kept for name in names]
    assert await stores.names() == sorted(kept)


async def test_deleting_nothing_answers_nothing(stores):
    assert await stores.deleter.delete([]) == []


async def test_deleting_a_directory_deletes_nothing_in_it(stores):
    await stores.put("data/sub/a")
    answers = await stores.deleter.delete([stores.at("data/sub").raw, stores.at("data").raw])
    assert len(answers) == 2
    assert await stores.names() == ["data/sub/a"]


async def test_removing_empty_directories_removes_no_object(stores):
    await stores.put("data/p=1/a")
    await stores.put("data/p=2/b")
    await stores.deleter.delete([stores.at("data/p=2/b").raw])
    asked = [stores.at(name).raw for name in ("data", "data/p=1", "data/p=2", "data/p=3")]
    removed = await stores.deleter.remove_empty_directories(stores.root, asked)
    assert removed == (1 if stores.kind == "local" else 0)
    assert await stores.names() == ["data/p=1/a"]


async def test_a_plain_write_replaces(stores):
    await stores.put("a", b"old")
    await stores.put("a", b"new")
    assert await stores.storage.read(stores.at("a")) == b"new"


async def test_a_create_only_write_never_replaces(stores):
    await stores.writer.put(stores.at("snapshot/1"), b"first", create_only=True)
    with pytest.raises(AlreadyThere):
        await stores.writer.put(stores.at("snapshot/1"), b"second", create_only=True)
    assert await stores.storage.read(stores.at("snapshot/1")) == b"first"
    assert await stores.names() == ["snapshot/1"]


async def test_of_racing_create_only_writes_one_wins(stores):
    async def write(number: int) -> int | None:
        try:
            await stores.writer.put(stores.at("snapshot/1"), f"writer {number}".encode(), create_only=True)
        except AlreadyThere:
            return None
        return number

    winners = [number for number in await asyncio.gather(*map(write, range(12))) if number is not None]
    assert len(winners) == 1
    assert await stores.storage.read(stores.at("snapshot/1")) == f"writer {winners[0]}".encode()


async def test_directory_markers_are_not_listed(stores):
    if stores.kind == "local":
        pytest.skip("directories are no objects here")
    await stores.put("data/", b"")
    await stores.put("data/a")
    assert await stores.names() == ["data/a"]


async def test_the_stores_clock_is_aware_and_plausible(stores):
    await stores.put("a")
    await stores.storage.read(stores.at("a"))
    now = await stores.storage.now()
    assert now.tzinfo is not None
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=2)


async def test_the_time_a_store_keeps_is_the_time_listed(stores, request):
    when = datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)
    place = await stores.put("data/old")
    match stores.kind:
        case "memory":
            memory.bucket(place.authority).set_modified(place.path, when)
        case "local":
            os.utime(place.path, (when.timestamp(), when.timestamp()))
        case "seaweedfs":
            request.getfixturevalue("seaweedfs").set_mtime(place.authority, place.path, when)
        case "s3-stub":
            when = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
        case "simulated":
            stores.storage._world.put(place.raw, b"x", "somebody", modified_at=when)
    (row,) = await stores.listed()
    assert row["modified_at"] == when


async def test_the_spec_opens_the_same_store_elsewhere(stores):
    if stores.kind == "simulated":
        pytest.skip("a world is not opened by its settings")
    await stores.put("a", b"seen")
    again = open_storage(pickle.loads(pickle.dumps(stores.spec)))
    try:
        assert await again.read(stores.at("a")) == b"seen"
    finally:
        await again.aclose()


@pytest.mark.parametrize("address", ["gs://bucket/x", "hdfs://host/x", "abfss://c@a/x"])
async def test_an_unknown_scheme_is_named_together_with_what_is_supported(stores, address):
    place = Location.parse(address)
    for attempt in (
        stores.storage.read(place),
        anext(stores.storage.list(place)),
        stores.deleter.delete([address]),
        stores.writer.put(place, b"", create_only=True),
    ):
        with pytest.raises(SettingsError, match=f"{place.scheme}://.*supported: file://, s3://, memory://"):
            await attempt
