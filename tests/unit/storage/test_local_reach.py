"""Local files below a place: reached without a link, read only if regular, written only where nothing leads away."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import aclosing
from pathlib import Path

import pytest

from lakesweep.model.errors import Denied, NotFound, OutsideRoot, TooLarge, Unavailable
from lakesweep.model.location import Location
from lakesweep.storage.local import open_below
from lakesweep.storage.local.store import LocalStorage, LocalWriter


def at(path: Path | str) -> Location:
    return Location.parse(str(path))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "root"
    inside.mkdir()
    (inside / "a").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "b").write_bytes(b"outside")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "gone").symlink_to(tmp_path / "nothing")
    (inside / "way").symlink_to(tmp_path / "far")
    return inside


async def test_a_file_below_the_place_is_read(root):
    storage = LocalStorage(places=[at(root)])
    assert await storage.read(at(root / "a")) == b"inside"
    assert (await storage.stat(at(root / "a"))).size_bytes == 6
    assert await storage.read(Location("file", "", f"{root}//a")) == b"inside"


@pytest.mark.parametrize("name", ["link", "gone", "way/b", "way/c", "../secret", "../nothing", "a/../../secret"])
async def test_links_and_what_is_outside_are_refused_with_the_same_message(root, name):
    storage = LocalStorage(places=[at(root)])
    for ask in (storage.read, storage.stat):
        with pytest.raises(OutsideRoot) as refused:
            await ask(Location("file", "", f"{root}/{name}"))
        assert refused.value.why == OutsideRoot("x").why


async def test_the_place_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    storage = LocalStorage(places=[at(tmp_path / "alias")])
    assert await storage.read(at(tmp_path / "alias" / "a")) == b"inside"


async def test_only_regular_files_are_read_and_nobody_waits(root):
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(root / "s"))
        for storage in (LocalStorage(places=[at(root)]), LocalStorage()):
            for name in ("pipe", "folder", "s", "nothing", "a/b"):
                with pytest.raises(NotFound):
                    await storage.read(at(root / name))
    with pytest.raises(NotFound):
        await LocalStorage().read(at("/dev/zero"))


@pytest.mark.parametrize("limit", [0, 5])
async def test_no_more_than_the_limit_is_read(root, limit):
    with pytest.raises(TooLarge, match="max_metadata_bytes"):
        await LocalStorage(places=[at(root)]).read(at(root / "a"), limit)
    assert await LocalStorage(places=[at(root)]).read(at(root / "a"), 6) == b"inside"


async def test_a_file_without_a_size_ends_at_the_limit():
    with pytest.raises(TooLarge):
        await LocalStorage().read(at("/proc/self/maps"), 100)


async def test_a_listing_follows_no_link_to_its_root(root):
    storage = LocalStorage(places=[at(root)])

    async def names(place):
        async with aclosing(storage.list(place)) as batches:
            return [path async for batch in batches for path in batch.column("path").to_pylist()]

    assert await names(at(root)) == [f"file://{root}/a"]
    for place in (at(root / "way"), at(root.parent / "far")):
        with pytest.raises(OutsideRoot):
            await names(place)
        with pytest.raises(OutsideRoot):
            await storage.directories(place)
        with pytest.raises(OutsideRoot):
            await storage.parts(place, 4)


def _asked_for(storage, place):
    """Every question about a directory, by name."""

    async def listed():
        async with aclosing(storage.list(place)) as batches:
            return [batch async for batch in batches]

    return {
        "list": listed,
        "directories": lambda: storage.directories(place),
        "parts": lambda: storage.parts(place, 4),
        "irregular": lambda: storage.irregular(place),
    }


@pytest.mark.parametrize("question", ["list", "directories", "parts", "irregular"])
@pytest.mark.parametrize(("code", "error"), [(errno.EACCES, Denied), (errno.EIO, Unavailable)])
async def test_a_directory_that_cannot_be_opened_is_an_error_of_the_store(root, monkeypatch, question, code, error):
    def opened(_place, _below):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(open_below, "open_directory", opened)
    with pytest.raises(error, match=f"file://{root}/closed: {os.strerror(code)}"):
        await _asked_for(LocalStorage(places=[at(root)]), at(root / "closed"))[question]()


@pytest.mark.parametrize("question", ["list", "directories", "parts", "irregular"])
async def test_a_name_that_no_directory_can_have_is_an_error_of_the_store(root, question):
    with pytest.raises(Unavailable, match="name too long"):
        await _asked_for(LocalStorage(places=[at(root)]), at(root / ("x" * 300)))[question]()


# Writing.


@pytest.mark.parametrize("create_only", [True, False])
async def test_new_directories_are_made_on_the_way(root, create_only):
    await LocalWriter([at(root)]).put(at(root / "x" / "y" / "z"), b"new", create_only=create_only)
    assert (root / "x" / "y" / "z").read_bytes() == b"new"
    assert [path.name for path in (root / "x" / "y").iterdir()] == ["z"]


@pytest.mark.parametrize("create_only", [True, False])
@pytest.mark.parametrize("name", ["way/new", "way/deep/new", "../far/new", "a/new", "gone/new"])
async def test_nothing_is_written_through_a_link_or_outside(root, name, create_only):
    before = {path: path.read_bytes() for path in root.parent.rglob("*") if path.is_file()}
    with pytest.raises(OutsideRoot):
        await LocalWriter([at(root)]).put(Location("file", "", f"{root}/{name}"), b"new", create_only=create_only)
    assert {path: path.read_bytes() for path in root.parent.rglob("*") if path.is_file()} == before


async def test_a_link_at_the_name_itself_is_replaced_and_not_followed(root):
    await LocalWriter([at(root)]).put(at(root / "link"), b"new", create_only=False)
    assert (root.parent / "secret").read_bytes() == b"outside"
    assert not (root / "link").is_symlink()
