"""Deleting local files in batches: each answered for itself, in the order asked, and never through a link."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.laws import examples
from tests.unit.storage.limits import handles_left, open_files

from lakesweep.model.errors import FailureKind
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleted, DeleteStatus
from lakesweep.storage.local import deleter as local_deleter
from lakesweep.storage.local.deleter import LocalDeleter, local_path
from lakesweep.storage.local.system_calls import remove


@pytest.fixture
def tree(tmp_path) -> Path:
    """Three partitions of a table, and a place outside with the same names."""
    for place in ("t/p=1", "t/p=2", "t/p=2/deep", "outside", "outside/deep"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name in "abc":
            (tmp_path / place / name).write_text(name)
    return tmp_path


def delete(*paths: Path | str) -> list[Deleted]:
    return asyncio.run(LocalDeleter().delete([f"file://{path}" for path in paths]))


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def test_a_batch_over_several_directories_is_answered_in_the_order_asked(tree):
    t = tree / "t"
    (t / "link").symlink_to(tree / "outside")
    (t / "p=1/link").symlink_to(tree / "outside/a")
    asked = {
        "p=2/a": (DeleteStatus.DELETED, None),
        "p=1/c": (DeleteStatus.DELETED, None),
        "link/a": (DeleteStatus.FAILED, f"{t}/link is a link or not a directory; nothing is deleted through it"),
        "p=2/deep/b": (DeleteStatus.DELETED, None),
        "p=1/link": (DeleteStatus.FAILED, "not a regular file"),
        "link/deep/a": (DeleteStatus.FAILED, f"{t}/link is a link or not a directory; nothing is deleted through it"),
        "p=2/deep": (DeleteStatus.FAILED, "not a regular file"),
        "p=9/a": (DeleteStatus.ALREADY_GONE, None),
        "p=1/a/x": (DeleteStatus.FAILED, f"{t}/p=1/a is a link or not a directory; nothing is deleted through it"),
        "p=2//b": (DeleteStatus.FAILED, "not a plain absolute path"),
        "p=9/b": (DeleteStatus.ALREADY_GONE, None),
        "link/b": (DeleteStatus.FAILED, f"{t}/link is a link or not a directory; nothing is deleted through it"),
        "p=1/none": (DeleteStatus.ALREADY_GONE, None),
        "p=1/" + "x" * 300: (DeleteStatus.FAILED, os.strerror(36)),
        "y" * 9000 + "/a": (DeleteStatus.FAILED, os.strerror(36)),
        "p=2/b": (DeleteStatus.DELETED, None),
    }
    answers = delete(*(f"{t}/{name}" for name in asked))
    assert [answer.path for answer in answers] == [f"file://{t}/{name}" for name in asked]
    assert [(answer.status, answer.why) for answer in answers] == list(asked.values())
    assert left(tree) == [
        *("outside/a", "outside/b", "outside/c", "outside/deep/a", "outside/deep/b", "outside/deep/c"),
        *("t/p=1/a", "t/p=1/b", "t/p=2/c", "t/p=2/deep/a", "t/p=2/deep/c"),
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EACCES, FailureKind.DENIED),
        (errno.EPERM, FailureKind.DENIED),
        (errno.EROFS, FailureKind.DENIED),
        (errno.ETIMEDOUT, FailureKind.UNAVAILABLE),
        (errno.ENOTCONN, FailureKind.UNAVAILABLE),
        (errno.EBUSY, FailureKind.OTHER),
        (errno.EMFILE, FailureKind.OTHER),
    ],
)
def test_the_kind_of_a_failure_is_that_of_the_systems_code(monkeypatch, tree, code, kind):
    monkeypatch.setattr(local_deleter, "remove", lambda places, **_: [(code, 0)] * len(places))
    (answer,) = delete(tree / "t/p=1/a")
    assert (answer.status, answer.kind) == (DeleteStatus.FAILED, kind)


def test_a_directorys_name_is_no_reason_for_a_failure(tree):
    place = tree / "t/503 permission denied"
    place.symlink_to(tree / "outside")
    (answer,) = delete(place / "a")
    assert (answer.status, answer.kind) == (DeleteStatus.FAILED, FailureKind.OTHER)


@pytest.mark.parametrize(("one", "other"), [("p=2/deep", "p=2"), ("p=10", "p=1")])
@pytest.mark.parametrize("turned", [False, True])
def test_directories_of_which_one_begins_like_the_other_are_two(tree, one, other, turned):
    (tree / "t/p=10").mkdir()
    places = [tree / "t" / one, tree / "t" / other]
    for place in places:
        (place / "a").write_text("a")
        (place / "b").write_text("b")
    first, second = reversed(places) if turned else places
    assert [answer.status for answer in delete(first / "a", first / "b", second / "a")] == [DeleteStatus.DELETED] * 3
    assert not (first / "b").exists()
    assert not (second / "a").exists()
    assert (second / "b").exists()


def test_a_file_asked_for_twice_is_gone_the_second_time(tree):
    statuses = [answer.status for answer in delete(tree / "t/p=1/a", tree / "t/p=2/a", tree / "t/p=1/a")]
    assert statuses == [DeleteStatus.DELETED, DeleteStatus.DELETED, DeleteStatus.ALREADY_GONE]


@pytest.mark.parametrize(
    "address", ["s3://bucket/x{}", "s3a://bucket/{}", "memory://bucket/{}", "nowhere", "file://h/x"]
)
def test_an_address_that_is_not_local_deletes_nothing(tree, address):
    (answer,) = asyncio.run(LocalDeleter().delete([address.format(tree / "t/p=1/a")]))
    assert answer.status is DeleteStatus.FAILED
    assert answer.why
    assert (tree / "t/p=1/a").exists()


@pytest.mark.parametrize("twist", ["p=1/a\0", "p=1/a\0b", "p=1\0/a", "p=1/\ud800"])
def test_a_path_that_no_file_can_have_fails_alone(tree, twist):
    odd, plain = asyncio.run(LocalDeleter().delete([f"file://{tree}/t/{twist}", f"file://{tree}/t/p=1/b"]))
    assert (odd.status, plain.status) == (DeleteStatus.FAILED, DeleteStatus.DELETED)
    assert (tree / "t/p=1/a").exists()


def test_a_path_with_a_nul_is_refused_and_never_cut(tree):
    with pytest.raises(ValueError, match="NUL"):
        remove([os.fsencode(tree / "t/p=1/a") + b"\0b"])
    assert (tree / "t/p=1/a").exists()


def test_a_file_right_below_the_root_directory_is_answered():
    (answer,) = delete("/no-such-file-of-lakesweep")
    assert answer.status is DeleteStatus.ALREADY_GONE


def many(tree: Path) -> list[Path]:
    files = [tree / f"t/q={number}/f" for number in range(60)]
    for file in files:
        file.parent.mkdir()
        file.touch()
    return files


async def test_a_batch_over_many_directories_needs_few_handles(tree):
    addresses = [f"file://{file}" for file in many(tree)]
    deleter = LocalDeleter()
    await deleter.delete([])  # its thread is there now
    before = open_files()
    with handles_left(3):
        answers = await deleter.delete(addresses)
    assert {answer.status for answer in answers} == {DeleteStatus.DELETED}
    assert open_files() == before


@pytest.mark.parametrize("handles", [0, 1, 2])
async def test_without_a_handle_every_file_fails_and_says_why(tree, handles):
    addresses = [f"file://{file}" for file in many(tree)]
    deleter = LocalDeleter()
    await deleter.delete([])
    before = open_files()
    with handles_left(handles):
        answers = await deleter.delete(addresses)
    assert {(answer.status, answer.why) for answer in answers} == {(DeleteStatus.FAILED, os.strerror(24))}
    assert open_files() == before


def test_nothing_outside_is_deleted_while_links_are_swapped(tree):
    over = threading.Event()
    place, aside, outside = tree / "t/p=1", tree / "aside", tree / "outside"
    names = [f"{number:03}" for number in range(30)]
    for name in names:
        (outside / name).touch()

    def swap() -> None:
        while not over.is_set():
            place.rename(aside)
            place.symlink_to(outside)
            place.unlink()
            aside.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    statuses, rounds, both = set(), 0, {DeleteStatus.FAILED, DeleteStatus.ALREADY_GONE}
    try:
        while rounds < 300 or (statuses != both and rounds < 100_000):  # on a busy machine the two may miss each other
            statuses |= {answer.status for answer in delete(*(place / name for name in names))}
            rounds += 1
    finally:
        over.set()
        swapping.join()
    assert sorted(path.name for path in outside.iterdir() if path.is_file()) == [*names, "a", "b", "c"]
    assert statuses == both
    shutil.rmtree(place)


TEXT = st.text(st.sampled_from("file:/FILEs3a.+-%?#\n é\0"), max_size=30)
ADDRESSES = st.builds(str.__add__, st.sampled_from(["", "file:", "file:/", "file://", "file:///", "FILE:///"]), TEXT)


@settings(max_examples=examples(150, soak=5000))
@given(address=ADDRESSES)
@example(address="file:///a\n")
@example(address="file:///")
@example(address="file:////a")
def test_the_short_way_to_a_path_agrees_with_the_parser(address):
    try:
        place = Location.parse(address)
        expected = place.path if place.scheme == "file" else None
    except ValueError:
        expected = None
    try:
        found = local_path(address)
    except ValueError:
        found = None
    assert found == expected
