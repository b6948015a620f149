"""The laws of Mover, on every store: what moves is never in no place, and nothing that is there is replaced."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

import pytest
from tests.builders.stores import ODD_NAMES, StorageSpec
from tests.servers.s3_stub import asked_keys, delete_errors, error, etag, s3_stub, xml
from tests.sim.mover import SimMover
from tests.sim.ports import Process, SimStorage, SimWriter
from tests.sim.world import World

from lakesweep.cleanup.delete_gate import TrashDeleter
from lakesweep.model.errors import NotFound
from lakesweep.model.files import Went
from lakesweep.model.location import Location
from lakesweep.model.trash import RunTrash
from lakesweep.ports.deleter import ANOTHER_OBJECT, TAKEN, Deleted, DeleteStatus, Marker, Move, Mover
from lakesweep.ports.storage import Storage, Writer
from lakesweep.storage.local.mover import LocalMover
from lakesweep.storage.registry import open_mover, open_storage, open_writer
from lakesweep.storage.s3.copying import Copier
from lakesweep.storage.s3.mover import S3Mover
from lakesweep.storage.s3.settings import S3Options


@dataclass(kw_only=True)
class Lake:
    kind: str
    root: Location
    storage: Storage
    mover: Mover
    writer: Writer

    @property
    def trash(self) -> RunTrash:
        return RunTrash(place=self.root.join(".lakesweep-trash"), root=self.root, run_id="r1")

    def at(self, name: str) -> str:
        return Location(self.root.scheme, self.root.authority, self.root.as_directory().path + name).raw

    async def put(self, name: str, data: bytes = b"x") -> str:
        await self.writer.put(Location.parse(self.at(name)), data, create_only=False)
        return self.at(name)

    def away(self, *paths: str) -> list[Move]:
        return [Move(source=path, target=self.trash.address(path)) for path in paths]

    def home(self, *paths: str) -> list[Move]:
        return [Move(source=self.trash.address(path), target=path) for path in paths]

    async def read(self, path: str) -> bytes | None:
        try:
            return await self.storage.read(Location.parse(path))
        except NotFound:
            return None

    async def both(self, path: str) -> tuple[bytes | None, bytes | None]:
        """What is at home, and what is in the trash."""
        return await self.read(path), await self.read(self.trash.address(path))


def _opened(kind: str, root: Location, spec: StorageSpec) -> Lake:
    return Lake(kind=kind, root=root, storage=open_storage(spec), mover=open_mover(spec), writer=open_writer(spec))


def simulated(root: Location) -> Lake:
    """The simulator's."""
    process = Process(World())
    return Lake(
        kind="simulated",
        root=root,
        storage=SimStorage(process),
        mover=SimMover(process),
        writer=SimWriter(process),
    )


@pytest.fixture
async def lake(store_place):
    root = store_place.at("w")
    async with AsyncExitStack() as stack:
        real = store_place.kind != "simulated"
        opened = _opened(store_place.kind, root, store_place.spec) if real else simulated(root)
        for side in (opened.storage, opened.mover, opened.writer):
            stack.push_async_callback(side.aclose)
        yield opened


@dataclass
class Said:
    """Conditions that were decided before."""

    etags: Mapping[str, str] = field(default_factory=dict)
    written_ms: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, Deleted] = field(default_factory=dict)
    over: str | None = None

    async def withheld(self, paths: Sequence[str]) -> Mapping[str, Deleted]:
        return {path: self.kept[path] for path in paths if path in self.kept}

    def ended(self) -> str | None:
        return self.over


async def test_what_moves_to_the_trash_comes_back_with_every_byte(lake):
    names = [f"t/data/{name}" for name in ODD_NAMES] + ["t/data/plain.parquet", "t/empty"]
    if lake.kind == "seaweedfs":  # it keeps objects as files
        names = [name for name in names if "\n" not in name and "\x01" not in name]
    paths = [await lake.put(name, b"" if name == "t/empty" else name.encode()) for name in names]
    gone = await lake.mover.to_trash(lake.away(*paths))
    assert [(one.path, one.status, one.went) for one in gone] == [
        (path, DeleteStatus.DELETED, Went.TRASH) for path in paths
    ]
    for path, name in zip(paths, names, strict=True):
        assert await lake.both(path) == (None, b"" if name == "t/empty" else name.encode())
    back = await lake.mover.back(lake.home(*paths))
    assert {one.status for one in back} == {DeleteStatus.DELETED}
    for path, name in zip(paths, names, strict=True):
        assert await lake.both(path) == (b"" if name == "t/empty" else name.encode(), None)


async def test_a_missing_source_is_already_gone_both_ways(lake):
    there = await lake.put("t/there")
    missing = lake.at("t/never/was")
    told = await lake.mover.to_trash(lake.away(missing, there))
    assert [one.status for one in told] == [DeleteStatus.ALREADY_GONE, DeleteStatus.DELETED]
    told = await lake.mover.back(lake.home(missing))
    assert [one.status for one in told] == [DeleteStatus.ALREADY_GONE]
    assert await lake.read(missing) is None


async def test_nothing_that_is_there_is_replaced(lake):
    path = await lake.put("t/a", b"old")
    await lake.mover.to_trash(lake.away(path))
    await lake.put("t/a", b"new")
    (told,) = await lake.mover.back(lake.home(path))
    assert (told.status, told.why) == (DeleteStatus.SPARED, TAKEN)
    assert await lake.both(path) == (b"new", b"old")
    (told,) = await lake.mover.to_trash(lake.away(path))
    assert (told.status, told.why) == (DeleteStatus.SPARED, TAKEN)
    assert await lake.both(path) == (b"new", b"old")


async def test_what_the_conditions_keep_is_not_moved(lake):
    one, two = await lake.put("t/1"), await lake.put("t/2")
    kept = {one: Deleted(path=one, status=DeleteStatus.SPARED, why="live")}
    told = await lake.mover.to_trash(lake.away(one, two), Said(kept=kept))
    assert [answer.status for answer in told] == [DeleteStatus.SPARED, DeleteStatus.DELETED]
    assert await lake.both(one) == (b"x", None)
    (told,) = await lake.mover.to_trash(lake.away(one), Said(over="the lease is another's"))
    assert (told.status, told.why) == (DeleteStatus.NOT_SENT, "the lease is another's")
    assert await lake.both(one) == (b"x", None)


async def test_another_object_than_the_one_judged_stays(lake):
    path = await lake.put("t/a", b"old")
    if lake.kind == "local":
        os.utime(Location.parse(path).path, (1_700_000_000, 1_700_000_000))
    seen = await lake.storage.stat(Location.parse(path))
    judged = Said(etags={path: seen.etag}) if seen.etag else Said(written_ms={path: 1_700_000_000_000})
    await lake.put("t/a", b"new")
    (told,) = await lake.mover.to_trash(lake.away(path), judged)
    assert told.status is DeleteStatus.SPARED
    assert await lake.both(path) == (b"new", None)


@pytest.fixture
async def versioned(seaweedfs):
    """A real bucket that keeps versions."""
    name = f"versions-{uuid.uuid4().hex[:12]}"
    client = seaweedfs.client()
    client.create_bucket(Bucket=name)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    spec = StorageSpec(s3=S3Options(endpoint_url=seaweedfs.endpoint_url, path_style=True))
    async with AsyncExitStack() as stack:
        opened = Lake(
            kind="versioned",
            root=Location("s3", name, "w"),
            storage=open_storage(spec),
            mover=open_mover(spec),
            writer=open_writer(spec),
        )
        for side in (opened.storage, opened.mover, opened.writer):
            stack.push_async_callback(side.aclose)
        yield opened, client


async def test_versioning_copies_nothing_and_removing_the_marker_gives_it_back(versioned):
    lake, _ = versioned
    paths = [await lake.put(name, name.encode()) for name in ("t/a", "t/ab", "t/c")]
    told = await lake.mover.to_trash(lake.away(*paths))
    assert {(one.status, one.went) for one in told} == {(DeleteStatus.DELETED, Went.VERSIONS)}
    assert all(one.delete_marker for one in told)
    assert [await lake.both(path) for path in paths] == [(None, None)] * 3
    markers = [Marker(path=one.path, version=one.delete_marker) for one in told]

    await lake.put("t/c", b"new")  # written again since
    back = await lake.mover.uncover(markers)
    assert [one.status for one in back] == [DeleteStatus.DELETED, DeleteStatus.DELETED, DeleteStatus.SPARED]
    assert [await lake.read(path) for path in paths] == [b"t/a", b"t/ab", b"new"]
    again = await lake.mover.uncover(markers)
    assert {one.status for one in again} == {DeleteStatus.SPARED}
    assert [await lake.read(path) for path in paths] == [b"t/a", b"t/ab", b"new"]


async def test_what_was_copied_to_the_trash_names_no_delete_marker(versioned, monkeypatch):
    """Where the bucket does not say that it keeps versions. A restore goes by the marker if it is told of one."""
    lake, _ = versioned

    async def may_not_ask(*_):
        return False

    monkeypatch.setattr(S3Mover, "_versioned", may_not_ask)
    path = await lake.put("t/a", b"data")
    (told,) = await lake.mover.to_trash(lake.away(path))
    assert (told.status, told.went, told.delete_marker) == (DeleteStatus.DELETED, Went.TRASH, None)
    assert await lake.both(path) == (None, b"data")


@pytest.mark.parametrize("marker", [None, "null"])
@pytest.mark.parametrize(("kept", "lost"), [(0, 1), (1, 200), (201, 200)])
async def test_a_bucket_that_keeps_no_version_loses_one_page_at_most(s3_credentials, kept, lost, marker):
    """It says that it keeps versions; a prefix is excluded, or versioning is suspended while we delete."""
    names = [f"w/t/{number:04}" for number in range(700)]
    async with s3_stub("lake") as server:
        held = server.buckets["lake"]
        held.update(dict.fromkeys(names, b"x"))

        async def fault(request):
            if "versioning" in request.query:
                return xml("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
            if request.operation != "delete_page":
                return None
            version = marker if len(names) - len(held) >= kept else "v1"
            for key in asked_keys(request):
                del held[key]
            says = f"<DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>{version}</DeleteMarkerVersionId>"
            told = "".join(
                f"<Deleted><Key>{key}</Key>{says if version else ''}</Deleted>" for key in asked_keys(request)
            )
            return xml(f"<DeleteResult>{told}</DeleteResult>")

        server.fault = fault
        moves = [Move(source=f"s3://lake/{name}", target=f"s3://lake/w/.trash/r/{name}") for name in names]
        async with aclosing(S3Mover(S3Options(endpoint_url=server.endpoint_url, path_style=True))) as mover:
            told = await mover.to_trash(moves)
            again = await mover.to_trash(moves[kept + lost :])
        assert [one.path for one in told] == [move.source for move in moves]
        assert [one.status for one in told[: kept + lost]] == [DeleteStatus.DELETED] * (kept + lost)
        for one in (*told[kept + lost :], *again):
            assert one.status is DeleteStatus.FAILED
            assert f"kept no version of s3://lake/{names[kept]}" in one.why
        assert sorted(held) == names[kept + lost :]


async def test_only_a_newest_delete_marker_is_ever_removed_by_its_version(versioned):
    """A version with data would be gone for good, and a marker below another brings nothing back."""
    lake, client = versioned
    path = await lake.put("t/a", b"data")
    (gone,) = await lake.mover.to_trash(lake.away(path))
    bucket, key = lake.root.authority, Location.parse(path).path
    client.delete_object(Bucket=bucket, Key=key)  # somebody else's marker is on top
    listed = client.list_object_versions(Bucket=bucket, Prefix=key)
    versions = [one["VersionId"] for one in listed["Versions"]]
    for version in (*versions, gone.delete_marker):
        (told,) = await lake.mover.uncover([Marker(path=path, version=version)])
        assert (told.status, "not the delete marker of this run" in told.why) == (DeleteStatus.ALREADY_GONE, True)
    after = client.list_object_versions(Bucket=bucket, Prefix=key)
    assert [one["VersionId"] for one in after["Versions"]] == versions
    assert len(after["DeleteMarkers"]) == len(listed["DeleteMarkers"]) == 2


async def test_a_delete_marker_whose_version_was_purged_is_reported_and_stays(versioned):
    """As a lifecycle rule for noncurrent versions does it: nothing would come back."""
    lake, client = versioned
    path = await lake.put("t/a", b"data")
    await lake.put("t/ab", b"another's")
    (gone,) = await lake.mover.to_trash(lake.away(path))
    bucket, key = lake.root.authority, Location.parse(path).path
    listed = client.list_object_versions(Bucket=bucket, Prefix=key)
    (version,) = [one["VersionId"] for one in listed["Versions"] if one["Key"] == key]
    client.delete_object(Bucket=bucket, Key=key, VersionId=version)
    for _ in range(2):
        (told,) = await lake.mover.uncover([Marker(path=path, version=gone.delete_marker)])
        assert (told.status, "lifecycle rule" in told.why) == (DeleteStatus.ALREADY_GONE, True)


async def test_a_key_too_long_for_the_trash_stays_and_names_the_setting(s3_credentials):
    path = f"s3://lake/w/{'long/' * 203}a"
    async with s3_stub("lake") as server:
        server.buckets["lake"][Location.parse(path).path] = b"data"
        async with aclosing(S3Mover(S3Options(endpoint_url=server.endpoint_url, path_style=True))) as mover:
            (told,) = await mover.to_trash([Move(source=path, target=path.replace("/w/", "/w/.trash/r/"))])
        assert (told.status, "orphan_cleanup.trash" in told.why) == (DeleteStatus.FAILED, True)
        assert list(server.buckets["lake"]) == [Location.parse(path).path]


async def test_a_large_object_is_copied_in_parts_with_all_that_belongs_to_it(seaweedfs):
    """Above the limit of one request; here the limit is small."""
    name = f"parts-{uuid.uuid4().hex[:12]}"
    client = seaweedfs.client()
    client.create_bucket(Bucket=name)
    data = bytes(range(256)) * 50_000
    belongs = {"Metadata": {"k": "v"}, "ContentType": "x/y", "StorageClass": "STANDARD_IA"}
    client.put_object(Bucket=name, Key="w/t/a", Body=data, Tagging="a=1&b=x%20y", **belongs)
    options = S3Options(endpoint_url=seaweedfs.endpoint_url, path_style=True)
    mover = S3Mover(options)
    mover._copier = Copier(mover._connection, copy_bytes=2**20, part_bytes=5 * 2**20)
    async with aclosing(mover):
        move = Move(source=f"s3://{name}/w/t/a", target=f"s3://{name}/w/.trash/r/t/a")
        (told,) = await mover.to_trash([move])
        assert (told.status, told.went) == (DeleteStatus.DELETED, Went.TRASH)
        found = client.get_object(Bucket=name, Key="w/.trash/r/t/a")
        assert found["Body"].read() == data
        assert {key: found[key] for key in belongs} == belongs
        tags = client.get_object_tagging(Bucket=name, Key="w/.trash/r/t/a")["TagSet"]
        assert {tag["Key"]: tag["Value"] for tag in tags} == {"a": "1", "b": "x y"}
        (back,) = await mover.back([Move(source=move.target, target=move.source)])
        assert back.status is DeleteStatus.DELETED
        assert client.get_object(Bucket=name, Key="w/t/a")["Body"].read() == data
        assert "Contents" not in client.list_objects_v2(Bucket=name, Prefix="w/.trash")


@pytest.mark.parametrize("broken", ["copy refused", "copy lost", "copy cut", "delete refused"])
async def test_a_copy_that_is_not_whole_leaves_the_object_where_it_is(s3_credentials, broken):
    name = "lake"
    async with s3_stub(name) as server:
        server.buckets[name]["w/t/a"] = b"data"

        async def fault(request):
            if request.operation == "copy" and broken == "copy refused":
                return error(403, "AccessDenied")
            if request.operation == "copy" and broken in ("copy lost", "copy cut"):
                if broken == "copy cut":
                    server.buckets[name][request.key] = b"dat"
                digest = etag(b"dat" if broken == "copy cut" else b"data")
                return xml(f"<CopyObjectResult><ETag>&quot;{digest}&quot;</ETag></CopyObjectResult>")
            if request.operation == "delete_page" and broken == "delete refused":
                return delete_errors({"w/t/a": "AccessDenied"})
            return None

        server.fault = fault
        async with aclosing(S3Mover(S3Options(endpoint_url=server.endpoint_url, path_style=True))) as mover:
            (told,) = await mover.to_trash([Move(source="s3://lake/w/t/a", target="s3://lake/w/.trash/r/t/a")])
        assert told.status is DeleteStatus.FAILED
        assert server.buckets[name]["w/t/a"] == b"data"


async def test_an_object_that_is_replaced_behind_its_copy_stays(s3_credentials):
    """The delete compares with the very object that was copied."""
    async with s3_stub("lake") as server:
        server.buckets["lake"]["w/t/a"] = b"old"

        async def fault(request):
            if request.operation == "delete_page":
                server.buckets["lake"]["w/t/a"] = b"new"

        server.fault = fault
        async with aclosing(S3Mover(S3Options(endpoint_url=server.endpoint_url, path_style=True))) as mover:
            (told,) = await mover.to_trash([Move(source="s3://lake/w/t/a", target="s3://lake/w/.trash/r/t/a")])
        assert told.status is DeleteStatus.SPARED
        assert server.buckets["lake"] == {"w/t/a": b"new", "w/.trash/r/t/a": b"old"}


async def test_a_file_of_others_in_our_place_of_the_trash_is_a_failure(lake):
    path = await lake.put("t/a", b"old")
    await lake.writer.put(Location.parse(lake.trash.address(path)), b"theirs", create_only=False)
    (told,) = await TrashDeleter(lake.mover, None, lake.trash).delete([path])
    assert (told.status, "another object is at" in told.why) == (DeleteStatus.FAILED, True)
    assert await lake.both(path) == (b"old", b"theirs")


async def test_a_copy_whose_answer_was_lost_is_finished_and_not_a_failure(s3_credentials):
    async with s3_stub("lake") as server:
        server.buckets["lake"] = {"w/t/a": b"data", "w/.trash/r/t/a": b"data"}
        async with aclosing(S3Mover(S3Options(endpoint_url=server.endpoint_url, path_style=True))) as mover:
            (told,) = await mover.to_trash([Move(source="s3://lake/w/t/a", target="s3://lake/w/.trash/r/t/a")])
        assert (told.status, told.went) == (DeleteStatus.DELETED, Went.TRASH)
        assert server.buckets["lake"] == {"w/.trash/r/t/a": b"data"}


async def test_local_files_move_where_a_rename_cannot_keep_what_is_there(tmp_path, monkeypatch):
    """As on NFS: by a second name, then without the first."""
    monkeypatch.setattr("lakesweep.storage.local.mover._rename_noreplace", lambda *_: errno.EINVAL)
    (tmp_path / "a").write_bytes(b"old")
    there, back = (f"file://{tmp_path}/{name}" for name in ("trash/r/a", "a"))
    async with aclosing(LocalMover()) as mover:
        (told,) = await mover.to_trash([Move(source=back, target=there)])
        assert told.status is DeleteStatus.DELETED
        (tmp_path / "a").write_bytes(b"new")
        (told,) = await mover.back([Move(source=there, target=back)])
        assert (told.status, told.why) == (DeleteStatus.SPARED, TAKEN)
        assert ((tmp_path / "a").read_bytes(), (tmp_path / "trash/r/a").read_bytes()) == (b"new", b"old")
        (tmp_path / "a").unlink()
        (tmp_path / "a").hardlink_to(tmp_path / "trash/r/a")  # killed between the two steps
        (told,) = await mover.to_trash([Move(source=back, target=there)])
        assert told.status is DeleteStatus.DELETED
    assert ((tmp_path / "a").exists(), (tmp_path / "trash/r/a").read_bytes()) == (False, b"old")


async def test_a_local_file_written_anew_during_the_move_stays(tmp_path, monkeypatch):
    """On NFS, between the second name and the loss of the first."""
    monkeypatch.setattr("lakesweep.storage.local.mover._rename_noreplace", lambda *_: errno.EINVAL)
    link, source = os.link, tmp_path / "a"

    def link_then_replace(*names, **more):
        link(*names, **more)
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "new").replace(source)

    source.write_bytes(b"old")
    monkeypatch.setattr("lakesweep.storage.local.mover.os.link", link_then_replace)
    async with aclosing(LocalMover()) as mover:
        (told,) = await mover.to_trash([Move(source=f"file://{source}", target=f"file://{tmp_path}/trash/r/a")])
    assert (told.status, told.why) == (DeleteStatus.SPARED, ANOTHER_OBJECT)
    assert (source.read_bytes(), (tmp_path / "trash/r/a").read_bytes()) == (b"new", b"old")


async def test_nothing_local_is_moved_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"data")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "odd").symlink_to(tmp_path / "real" / "a")
    moves = [
        Move(source=f"file://{tmp_path}/{source}", target=f"file://{tmp_path}/{target}")
        for source, target in (("link/a", "trash/a"), ("real/a", "link/b"), ("odd", "trash/odd"))
    ]
    async with aclosing(LocalMover()) as mover:
        told = await mover.to_trash(moves)
    assert {one.status for one in told} == {DeleteStatus.FAILED}
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["a"]


async def test_local_files_of_many_directories_move_in_any_order(tmp_path):
    """More directories than are held open: the source's own handle is not the one that is closed for the target."""
    names = ["d0/missing", *(f"d{number}/a" for number in range(1, 32)), "d32/missing", "d0/a"]
    moves = [Move(source=f"file://{tmp_path}/{name}", target=f"file://{tmp_path}/trash/r/{name}") for name in names]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name.endswith("/a"):
            (tmp_path / name).write_text(name)
    async with aclosing(LocalMover()) as mover:
        told = await mover.to_trash(moves)
    there = [DeleteStatus.DELETED if name.endswith("/a") else DeleteStatus.ALREADY_GONE for name in names]
    assert [one.status for one in told] == there
    assert (tmp_path / "trash/r/d0/a").read_text() == "d0/a"


@pytest.mark.parametrize("store", ["ignores the condition", "was faster"])
async def test_a_restore_spares_what_is_there_whatever_the_store_knows(s3_credentials, store):
    async with s3_stub("lake") as server:
        held = server.buckets["lake"]
        held["w/.trash/r/t/a"] = b"old"

        async def fault(request):
            if request.operation == "copy" and store == "ignores the condition":
                held[request.key] = b"old"
                return xml(f"<CopyObjectResult><ETag>&quot;{etag(b'old')}&quot;</ETag></CopyObjectResult>")
            if request.operation == "copy":
                held["w/t/a"] = b"new"
            return None

        if store == "ignores the condition":
            held["w/t/a"] = b"new"
        server.fault = fault
        async with aclosing(S3Mover(S3Options(endpoint_url=server.endpoint_url, path_style=True))) as mover:
            (told,) = await mover.back([Move(source="s3://lake/w/.trash/r/t/a", target="s3://lake/w/t/a")])
        assert (told.status, told.why) == (DeleteStatus.SPARED, TAKEN)
        assert held == {"w/t/a": b"new", "w/.trash/r/t/a": b"old"}
