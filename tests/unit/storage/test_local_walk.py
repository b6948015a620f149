"""The walk of a local tree: what `os.walk` finds, by any number of threads, also while the tree changes."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import os
import shutil
import socket
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, chdir, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.unit.storage.limits import handles_left, open_files, unprivileged

from lakesweep.model.errors import Denied, OutsideRoot, Unavailable
from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.storage.local import store
from lakesweep.storage.local.store import LocalStorage
from lakesweep.storage.local.walk import Walk, directories


def walked(root: Path | str, threads: int = 1, **limits) -> list[pa.RecordBatch]:
    with closing(Walk(str(root), age_by=AgeBy.MODIFICATION, **limits)) as walk, ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(list, [walk.batches() for _ in range(threads)]))
    return [batch for share in shares for batch in share]


def paths(batches: list[pa.RecordBatch]) -> list[str]:
    return sorted(path for batch in batches for path in batch["path"].to_pylist())


def with_files(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


# The same files as another way finds

NAMES = st.sampled_from(
    [
        *(b"a", b"b=1", b".hidden", b"...", b" ", b"line\nbreak", b"%2F?#", "é漢😀".encode(), b"x" * 255),
        *(b"bad\xff", b"\xed\xa0\x80", b"\xc3", b"\xe2\x82"),
    ]
)
FILES = st.tuples(st.just("file"), st.integers(0, 3), st.integers(-(10**18), 4 * 10**18))
OTHERS = st.tuples(
    st.sampled_from(["link to file", "link to directory", "loop", "dangling", "pipe", "socket"]), st.just(0), st.just(0)
)
TREES = st.recursive(
    st.dictionaries(NAMES, FILES | OTHERS, max_size=6),
    lambda inner: st.dictionaries(NAMES, FILES | OTHERS | inner, max_size=6),
    max_leaves=12,
)


def build(at: Path, tree: dict, outside: Path) -> None:
    at.mkdir()
    for name, what in tree.items():
        path = at / os.fsdecode(name)
        match what:
            case dict():
                build(path, what, outside)
            case ("file", size, modified_ns):
                path.write_bytes(b"x" * size)
                os.utime(path, ns=(0, modified_ns))
            case ("link to file", *_):
                path.symlink_to(outside / "precious")
            case ("link to directory", *_):
                path.symlink_to(outside)
            case ("loop", *_):
                path.symlink_to(at)
            case ("dangling", *_):
                path.symlink_to("/nowhere")
            case ("pipe", *_):
                os.mkfifo(path)
            case ("socket", *_):
                with chdir(at), socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(name[:50])  # the system allows only short addresses


def is_text(path: bytes) -> bool:
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True


def found_otherwise(root: Path) -> tuple[dict[str, tuple[int, int]], int]:
    """Size and milliseconds, rounded up, of every file with a name that is text; and how many have others."""
    found, skipped = {}, 0
    for folder, _, names in os.walk(os.fsencode(root)):
        for path in (folder + b"/" + name for name in names):
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                continue
            if is_text(path):
                found[f"file://{path.decode()}"] = (status.st_size, -(-status.st_mtime_ns // 1_000_000))
            else:
                skipped += 1
    return found, skipped


@settings(deadline=None, max_examples=120)
@given(tree=TREES, rows=st.sampled_from([1, 2, 5, 1000]), threads=st.integers(1, 4))
def test_a_walk_finds_what_another_way_finds(tmp_path_factory, tree, rows, threads):
    top = tmp_path_factory.mktemp("walk")
    with_files(top, "outside/precious")
    build(top / "t", tree, top / "outside")
    with capture_logs() as logs:
        batches = walked(top / "t", threads, batch_rows=rows)
    assert all(0 < batch.num_rows <= rows and batch.schema == LISTING_SCHEMA for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches, LISTING_SCHEMA)
    columns = (table[name].cast(kind).to_pylist() for name, kind in (("size_bytes", "int64"), ("modified_at", "int64")))
    listed = dict(zip(table["path"].to_pylist(), zip(*columns, strict=True), strict=True))
    expected, skipped = found_otherwise(top / "t")
    assert len(listed) == table.num_rows
    assert listed == expected
    assert table["etag"].null_count == table.num_rows
    assert sum(entry["skipped"] for entry in logs) == skipped
    shutil.rmtree(top)


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 3000])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_directory_of_any_size_is_listed_once_in_bounded_batches(tmp_path, count, threads):
    expected = [f"file://{tmp_path}/f{number}" for number in range(count)]
    for path in expected:
        Path(path.removeprefix("file://")).touch()
    batches = walked(tmp_path, threads, batch_rows=100)
    assert paths(batches) == sorted(expected)
    assert [batch.num_rows for batch in batches] == [100] * (count // 100) + [count % 100] * (count % 100 > 0)


def test_names_are_listed_exactly_if_python_can_decode_them(tmp_path):
    edges = [bytes([edge]) for edge in (0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)]
    leads = [bytes([lead]) for lead in (*range(0xC0, 0xC4), *range(0xDE, 0xE2), *range(0xEC, 0x100))]
    names = {b"x" + b"".join(parts) for length in (1, 2) for parts in itertools.product(edges + leads, repeat=length)}
    names |= {b"".join(parts) for parts in itertools.product(leads, edges, (b"\x80", b"\xbf", b"\x7f"))}
    names |= {b"".join(parts) for parts in itertools.product(leads, edges[2:8], (b"\x80", b"\xc0"), (b"\xbf", b"A"))}
    for name in names:
        os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT))
    with capture_logs() as logs:
        listed = paths(walked(tmp_path))
    assert listed == sorted(f"file://{tmp_path}/{name.decode()}" for name in names if is_text(name))
    assert logs[0]["skipped"] == sum(not is_text(name) for name in names)


@pytest.mark.parametrize("below", ["", "inner"])
def test_below_a_root_that_no_address_can_spell_every_file_is_skipped(tmp_path, below):
    root = with_files(tmp_path / os.fsdecode(b"bad\xff"), "f", "inner/f")
    with capture_logs() as logs:
        assert walked(root, below=below) == []
    assert logs[0]["skipped"] == (1 if below else 2)


def test_a_tree_deeper_than_a_path_may_be_long_is_listed(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("f", os.O_CREAT, dir_fd=here))
    os.close(here)
    assert paths(walked(tmp_path)) == [f"file://{tmp_path}/{'/'.join(['d' * 200] * 30)}/f"]
    shutil.rmtree(tmp_path)


def test_a_batch_ends_early_when_its_paths_are_long(tmp_path):
    here = tmp_path / "/".join(["d" * 250] * 14)
    here.mkdir(parents=True)
    for number in range(4500):
        (here / f"{number:0200d}").touch()
    batches = walked(tmp_path)
    assert sum(batch.num_rows for batch in batches) == 4500
    assert [batch["path"].nbytes < 17 << 20 for batch in batches] == [True, True]


@pytest.mark.parametrize(
    "seconds", [2**34, 2**62, 2**64 // 1000 + 1, -(2**34), -(2**37), -(2**62), -(2**64 // 1000 + 1)]
)
def test_a_time_beyond_every_date_is_listed_as_no_older_than_it_is(seconds):
    """Some file systems take any number, and as milliseconds it must not turn from the future into the past."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
        file = with_files(Path(root), "f") / "f"
        os.utime(file, ns=(0, seconds * 10**9))
        stored = file.stat().st_mtime_ns // 10**9
        (batch,) = walked(root)
        (listed,) = batch["modified_at"].to_pylist()  # a date, so it is one that Python has
    assert listed == datetime.fromtimestamp(0, UTC) + timedelta(seconds=min(max(stored, -62135596800), 253402300799))


@pytest.mark.parametrize(("root", "below"), [("/\0x", ""), ("/tmp", "a\0b")])
def test_a_path_with_a_nul_is_refused_and_never_cut(root, below):
    with pytest.raises(ValueError, match="NUL"):
        Walk(root, below)
    with pytest.raises(ValueError, match="NUL"):
        directories(root, below)


@pytest.mark.parametrize("rows", [0, 2**62])
def test_a_number_of_rows_that_makes_no_sense_is_refused(tmp_path, rows):
    with_files(tmp_path, "a")
    with pytest.raises(ValueError, match="rows at once"):
        walked(tmp_path, batch_rows=rows)


def test_batches_outlive_their_walk(tmp_path):
    with_files(tmp_path, "a", "b/c")
    (batch,) = walked(tmp_path)
    column = batch["path"]
    del batch
    gc.collect()
    assert sorted(column.to_pylist()) == [f"file://{tmp_path}/a", f"file://{tmp_path}/b/c"]


@pytest.mark.parametrize("root", ["nowhere", "file", "file/below", "dangling", "loop"])
def test_what_is_no_directory_lists_nothing(tmp_path, root):
    with_files(tmp_path, "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert walked(tmp_path / root) == []
    assert directories(str(tmp_path / root)) == []


# Trees that change


def test_a_directory_that_vanishes_in_mid_walk_is_nothing(tmp_path):
    names = ["a", *(f"q={part}/f" for part in range(20))]
    with_files(tmp_path, *(f"t/{name}" for name in names))
    batches = Walk(str(tmp_path / "t"), batch_rows=1).batches()
    first = next(batches)
    shutil.rmtree(tmp_path / "t")
    assert set(paths([first, *batches])) <= {f"file://{tmp_path}/t/{name}" for name in names}


def test_a_directory_replaced_by_a_link_in_mid_walk_is_not_followed(tmp_path):
    with_files(tmp_path, "t/top", "t/inner/file", "outside/precious")
    batches = Walk(str(tmp_path / "t"), batch_rows=1).batches()
    assert paths([next(batches)]) == [f"file://{tmp_path}/t/top"]
    shutil.rmtree(tmp_path / "t/inner")
    (tmp_path / "t/inner").symlink_to(tmp_path / "outside")
    assert list(batches) == []


def test_a_link_in_mid_walk_is_not_followed_higher_up_either(tmp_path):
    with_files(tmp_path, "t/a/top", "t/a/b/file", "outside/b/precious")
    batches = Walk(str(tmp_path / "t"), batch_rows=1).batches()
    assert paths([next(batches)]) == [f"file://{tmp_path}/t/a/top"]
    (tmp_path / "t/a").rename(tmp_path / "moved")
    (tmp_path / "t/a").symlink_to(tmp_path / "outside")
    assert list(batches) == []


@pytest.mark.parametrize("place", ["a", "a/b"])
def test_a_part_is_not_reached_through_a_link(tmp_path, place):
    with_files(tmp_path, "t/x", "outside/b/precious")
    (tmp_path / "t/a").symlink_to(tmp_path / "outside")
    assert walked(tmp_path / "t", below=place) == []
    assert directories(str(tmp_path / "t"), place) == []


def test_nothing_outside_is_listed_while_links_are_swapped(tmp_path):
    lasting = [f"keep={part}/{name}" for part in range(20) for name in ("x", "deep/y")]
    with_files(tmp_path, *(f"t/{name}" for name in lasting), "outside/b/precious", "outside/precious")
    over = threading.Event()

    def swap(number: int) -> None:
        place, aside = tmp_path / f"t/swap{number}", tmp_path / f"aside{number}"
        while not over.is_set():
            with_files(place, "b/own", "own")
            place.rename(aside)
            place.symlink_to(tmp_path / "outside")
            place.unlink()
            shutil.rmtree(aside)

    with ThreadPoolExecutor(3) as pool:
        swapping = [pool.submit(swap, number) for number in range(3)]
        try:
            for _ in range(150):
                listed = paths(walked(tmp_path / "t", 2, batch_rows=3))
                short = [path.removeprefix(f"file://{tmp_path}/t/") for path in listed]
                assert not [path for path in short if "precious" in path]
                assert [path for path in short if path.startswith("keep")] == sorted(lasting)
        finally:
            over.set()
    assert [task.exception() for task in swapping] == [None] * 3


# Errors, and the ways a walk ends


@pytest.fixture
def shut():
    """A tree that others may read, but for one directory deep inside."""
    root = Path(tempfile.mkdtemp())
    with_files(root, *(f"open={part}/f" for part in range(30)), "some/shut/f")
    root.chmod(0o755)
    (root / "some/shut").chmod(0o000)
    yield root
    (root / "some/shut").chmod(0o755)
    shutil.rmtree(root)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_thread_learns_of_an_error(shut, threads):
    before = open_files()
    walk = Walk(str(shut))
    with unprivileged(), ThreadPoolExecutor(threads) as pool:
        shares = [pool.submit(list, walk.batches()) for _ in range(threads)]
        errors = [share.exception() for share in shares]
    walk.close()
    assert all(isinstance(error, Denied) for error in errors)
    assert {str(error).partition(":")[0] for error in errors} == {str(errors[0]).partition(":")[0]}
    assert all(f"file://{shut}/some/shut" in str(error) for error in errors)
    assert open_files() == before


def test_an_error_reaches_threads_that_wait_for_others(shut):
    for number in range(5):
        (shut / f"open=1/{number}").touch()
    walk = Walk(str(shut), "open=1", batch_rows=1)
    first = walk.batches()
    next(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list, walk.batches())
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        (shut / "open=1").chmod(0o000)
        with unprivileged(), pytest.raises(Denied, match="open=1"):
            list(first)
        assert isinstance(waiting.exception(30), Denied)
    (shut / "open=1").chmod(0o755)
    walk.close()


async def test_a_listing_that_fails_gives_its_handles_back(shut):
    before = open_files()
    with unprivileged(), pytest.raises(Denied) as kept:
        async for _ in LocalStorage().list(Location("file", "", str(shut))):
            pass
    assert open_files() == before, kept


def test_directories_that_may_not_be_read_are_an_error(shut):
    with unprivileged(), pytest.raises(Denied, match="some/shut"):
        directories(str(shut), "some/shut")
    assert directories(str(shut), "some") == ["shut"]


@pytest.mark.parametrize("below", ["", "a", "a/b", "nowhere", "a/b/f/c"])
def test_looking_for_directories_gives_its_handles_back(tmp_path, below):
    with_files(tmp_path, "a/b/f")
    before = open_files()
    directories(str(tmp_path), below)
    assert open_files() == before


@pytest.mark.parametrize("count", range(4))
def test_a_walk_without_a_handle_is_an_error_and_never_a_short_listing(tmp_path, count):
    """The root, a copy of its handle, and the directory that is being opened: three at a time are needed."""
    expected = paths(walked(with_files(tmp_path, "f", *(f"p={part}/f" for part in range(20)))))
    before = open_files()
    walk = Walk(str(tmp_path), batch_rows=1)
    with closing(walk), handles_left(count):
        try:
            listed = paths(list(walk.batches()))
        except Unavailable as error:
            listed = str(error)
    assert listed == expected if count == 3 else os.strerror(errno.EMFILE) in listed
    assert open_files() == before


def begun(root):
    """A walk over a single directory, which is being read, and its first reader."""
    with_files(root, *(f"f{number}" for number in range(5)))
    walk = Walk(str(root), batch_rows=1)
    first = walk.batches()
    next(first)
    return walk, first


def test_a_stopped_walk_ends_for_threads_that_wait_for_others(tmp_path):
    walk, first = begun(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        # The only directory is being read, so there is nothing for a second reader but it might yet come.
        waiting = pool.submit(list, walk.batches())
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        walk.stop()
        assert waiting.result(30) == []
    assert list(first) == []


def test_a_reader_that_gives_up_lets_no_other_wait_for_ever(tmp_path):
    walk, first = begun(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list, walk.batches())
        first.close()
        assert waiting.result(30) == []


def test_after_a_reader_gave_up_nobody_goes_on(tmp_path):
    """What is left could not make the tree complete."""
    with_files(tmp_path, "a/1", "a/2", "b/1", "b/2")
    walk = Walk(str(tmp_path), batch_rows=1)
    first = walk.batches()
    next(first)
    assert walk.has_more
    first.close()
    assert list(walk.batches()) == []


async def test_a_slow_consumer_bounds_what_is_read_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MOST_THREADS", 3)
    for part in range(200):
        with_files(tmp_path, *(f"p={part}/f{number}" for number in range(10)))
    async with aclosing(store._walked(Walk(str(tmp_path), batch_rows=10))) as batches:
        first = await anext(batches)
        await asyncio.sleep(0.2)
        for part in range(200):
            shutil.rmtree(tmp_path / f"p={part}")
        rest = [batch async for batch in batches]
    # For each thread two batches ready and one that waits for room, and one in hand.
    assert sum(batch.num_rows for batch in (first, *rest)) <= 10 * (1 + 3 * (2 + 1))


async def test_a_small_listing_starts_no_thread_of_its_own(tmp_path):
    with_files(tmp_path, "a", "b/c")
    async with aclosing(store._walked(Walk(str(tmp_path)))) as batches:
        assert (await anext(batches)).num_rows == 2
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("walk")]
        assert await anext(batches, None) is None


async def test_nothing_is_listed_of_a_place_that_the_check_refuses(tmp_path):
    with_files(tmp_path, "a")

    def refuse():
        raise OutsideRoot(str(tmp_path))

    before = open_files()
    with pytest.raises(OutsideRoot):
        await anext(store._walked(Walk(str(tmp_path)), refuse))
    assert open_files() == before


@pytest.mark.parametrize("taken", [0, 1, 2, 3, None])
async def test_a_listing_gives_its_handles_and_threads_back_whenever_it_is_left(tmp_path, monkeypatch, taken):
    monkeypatch.setattr(store, "_MOST_THREADS", 3)
    for part in range(50):
        with_files(tmp_path, *(f"p={part}/f{number}" for number in range(10)))
    before = open_files()
    async with aclosing(store._walked(Walk(str(tmp_path), batch_rows=10))) as batches:
        seen = 0
        while seen != taken and await anext(batches, None) is not None:
            seen += 1
    assert seen == (50 if taken is None else taken)
    assert open_files() == before
    for thread in threading.enumerate():
        if thread.name.startswith("walk"):
            await asyncio.to_thread(thread.join, 30)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("walk")]
