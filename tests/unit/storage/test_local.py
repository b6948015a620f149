"""Local disks: what is never listed, never followed and never deleted."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.unit.storage.limits import unprivileged

from lakesweep.model.errors import AlreadyThere, Denied, NotFound
from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.ports.deleter import DeleteStatus
from lakesweep.storage.local.deleter import LocalDeleter
from lakesweep.storage.local.store import LocalStorage, LocalWriter


@pytest.fixture
def tree(tmp_path) -> Path:
    """A table with two files, and a place outside with one."""
    for name in ("table/data/a", "table/data/p=1/b", "outside/precious"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def at(path: Path) -> Location:
    return Location("file", "", str(path))


async def names(root: Path) -> list[str]:
    found: list[str] = []
    async with aclosing(LocalStorage().list(at(root))) as batches:
        async for batch in batches:
            found += batch["path"].to_pylist()
    return sorted(path.removeprefix(f"file://{root}/") for path in found)


async def delete_one(path: Path | str) -> tuple[DeleteStatus, str | None]:
    (answer,) = await LocalDeleter().delete([f"file://{path}"])
    return answer.status, answer.why


async def test_links_pipes_and_sockets_are_not_listed(tree):
    (tree / "table/link").symlink_to(tree / "outside/precious")
    (tree / "table/dangling").symlink_to(tree / "nowhere")
    os.mkfifo(tree / "table/pipe")
    assert await names(tree / "table") == ["data/a", "data/p=1/b"]


async def test_linked_directories_are_not_entered(tree):
    (tree / "table/data/p=2").symlink_to(tree / "outside")
    (tree / "table/data/loop").symlink_to(tree / "table")
    assert await names(tree / "table") == ["data/a", "data/p=1/b"]


async def test_the_root_itself_may_be_a_link(tree):
    (tree / "lake").symlink_to(tree / "table")
    assert await names(tree / "lake") == ["data/a", "data/p=1/b"]


async def test_nothing_is_deleted_through_a_link(tree):
    (tree / "table/data/p=2").symlink_to(tree / "outside")
    result, why = await delete_one(tree / "table/data/p=2/precious")
    assert result is DeleteStatus.FAILED
    assert str(tree / "table/data/p=2") in why
    assert (tree / "outside/precious").exists()


async def test_links_and_directories_are_not_deleted(tree):
    (tree / "table/link").symlink_to(tree / "outside/precious")
    assert await delete_one(tree / "table/link") == (DeleteStatus.FAILED, "not a regular file")
    assert await delete_one(tree / "table/data") == (DeleteStatus.FAILED, "not a regular file")
    assert (tree / "table/link").is_symlink()
    assert await names(tree / "table") == ["data/a", "data/p=1/b"]


@pytest.mark.parametrize("twist", ["table/../outside/precious", "table/./data/a", "table//data/a", "table/data/"])
async def test_a_path_that_is_not_plain_is_not_deleted(tree, twist):
    assert (await delete_one(f"{tree}/{twist}"))[0] is DeleteStatus.FAILED
    assert (tree / "outside/precious").exists()
    assert (tree / "table/data/a").exists()


async def test_a_missing_file_or_directory_is_already_gone(tree):
    assert await delete_one(tree / "table/data/none") == (DeleteStatus.ALREADY_GONE, None)
    assert await delete_one(tree / "table/none/none") == (DeleteStatus.ALREADY_GONE, None)


async def test_empty_directories_go_deepest_first_and_only_below_the_root(tree):
    (tree / "table/x/y/z").mkdir(parents=True)
    (tree / "empty").mkdir()
    asked = [
        f"file://{tree}/{name}" for name in ("table/x", "table/x/y/z", "table/x/y", "table/data", "empty", "table")
    ]
    assert await LocalDeleter().remove_empty_directories(at(tree / "table"), asked) == 3
    assert not (tree / "table/x").exists()
    assert (tree / "empty").exists()
    assert (tree / "table/data/a").exists()


async def test_names_that_are_not_utf8_are_skipped_and_counted(tree):
    (tree / "table" / os.fsdecode(b"bad-\xff")).write_text("x")
    (tree / "table" / os.fsdecode(b"dir-\xfe")).mkdir()
    (tree / "table" / os.fsdecode(b"dir-\xfe") / "inside").write_text("x")
    with capture_logs() as logs:
        assert await names(tree / "table") == ["data/a", "data/p=1/b"]
    assert [(entry["event"], entry["skipped"]) for entry in logs] == [("names_not_utf8_skipped", 2)]


async def test_an_unreadable_directory_is_an_error():
    root = Path(tempfile.mkdtemp())
    try:
        for name in ("open", "shut"):
            (root / name).mkdir()
            (root / name / "f").write_text("x")
        root.chmod(0o755)
        (root / "shut").chmod(0o000)
        with unprivileged():
            with pytest.raises(Denied, match="shut"):
                await names(root)
            with pytest.raises(Denied):
                await LocalStorage().read(at(root / "shut/f"))
            assert (await delete_one(root / "shut/f"))[0] is DeleteStatus.FAILED
    finally:
        (root / "shut").chmod(0o755)
        shutil.rmtree(root)


async def test_times_are_never_rounded_to_the_older_side(tree):
    storage = LocalStorage(AgeBy.MODIFICATION)
    os.utime(tree / "table/data/a", ns=(0, 1_600_000_000_123_000_001))
    async for batch in storage.list(at(tree / "table/data")):
        times = dict(zip(batch["path"].to_pylist(), batch["modified_at"].to_pylist(), strict=True))
    assert times[f"file://{tree}/table/data/a"].timestamp() == pytest.approx(1_600_000_000.124)
    assert (await storage.stat(at(tree / "table/data/a"))).modified_at == times[f"file://{tree}/table/data/a"]


@pytest.mark.parametrize("seconds", [2**39, 2**62, -(2**37), -(2**62)])
async def test_a_file_whose_time_is_no_date_is_looked_at_as_it_is_listed(seconds):
    storage = LocalStorage(AgeBy.MODIFICATION)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
        file = Path(root) / "f"
        file.touch()
        os.utime(file, ns=(0, seconds * 10**9))
        (listed,) = [batch["modified_at"][0].as_py() async for batch in storage.list(at(Path(root)))]
        assert (await storage.stat(at(file))).modified_at == listed


@pytest.mark.parametrize("arrive", ["mv", "cp -p"])
async def test_a_file_that_has_just_come_is_young_whatever_its_mtime_says(tree, arrive):
    source, came = tree / "outside/precious", tree / "table/data/came"
    os.utime(source, (1, 1))
    subprocess.run([*arrive.split(), source, came], check=True)
    before = datetime.now(UTC) - timedelta(minutes=1)
    assert came.stat().st_mtime == 1
    listed = {}
    async for batch in LocalStorage().list(at(tree / "table/data")):
        listed |= dict(zip(batch["path"].to_pylist(), batch["modified_at"].to_pylist(), strict=True))
    assert listed[f"file://{came}"] > before
    in_parts = {}
    for part in await LocalStorage().parts(at(tree / "table"), 4):
        async for batch in LocalStorage().list_part(part):
            in_parts |= dict(zip(batch["path"].to_pylist(), batch["modified_at"].to_pylist(), strict=True))
    assert in_parts[f"file://{came}"] > before
    assert (await LocalStorage().stat(at(came))).modified_at > before


async def test_a_time_in_the_future_counts_although_the_change_is_older(tree):
    ahead = (datetime.now(UTC) + timedelta(days=30)).timestamp()
    os.utime(tree / "table/data/a", (ahead, ahead))
    found = await LocalStorage().stat(at(tree / "table/data/a"))
    assert found.modified_at.timestamp() == pytest.approx(ahead)


@pytest.mark.parametrize("name", ["table/data", "table/data/a/b", "table/none", "table/da\0ta"])
async def test_what_is_no_file_is_not_found(tree, name):
    for ask in (LocalStorage().stat, LocalStorage().read):
        with pytest.raises(NotFound):
            await ask(Location("file", "", f"{tree}/{name}"))


async def test_leaving_a_listing_early_ends_its_thread(tree):
    for number in range(20_000):
        (tree / f"table/data/f{number}").touch()
    async with aclosing(LocalStorage().list(at(tree))) as batches:
        await anext(batches)  # the first rows need no thread of their own
        await anext(batches)
        assert [thread for thread in threading.enumerate() if thread.name.startswith("walk")]
    for thread in threading.enumerate():
        if thread.name.startswith("walk"):
            await asyncio.to_thread(thread.join)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("walk")]


async def test_cancelling_a_listing_ends_it(tree):
    started = asyncio.Event()

    async def consume() -> None:
        async for _ in LocalStorage().list(at(tree)):
            started.set()
            await asyncio.sleep(3600)

    task = asyncio.create_task(consume())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await names(tree / "table") == ["data/a", "data/p=1/b"]


async def test_writing_leaves_nothing_beside_the_file(tree):
    writer = LocalWriter()
    await writer.put(at(tree / "table/new/dir/v1"), b"1", create_only=True)
    with pytest.raises(AlreadyThere):
        await writer.put(at(tree / "table/new/dir/v1"), b"2", create_only=True)
    await writer.put(at(tree / "table/new/dir/v1"), b"3", create_only=False)
    assert [path.name for path in (tree / "table/new/dir").iterdir()] == ["v1"]
    assert (tree / "table/new/dir/v1").read_bytes() == b"3"
