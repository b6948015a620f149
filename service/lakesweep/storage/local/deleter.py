"""Delete local files, by exact path, one regular file at a time.

Never a directory with anything in it, never a link, and never through one: every directory on the way is opened
without following links, so a path that leads elsewhere fails instead of deleting there. `_unlink` does that, once for
all files of a call that share a directory, and without the interpreter lock.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Sequence

from lakesweep.model.errors import FailureKind
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Conditions, Deleted, DeleteStatus, not_sent
from lakesweep.storage.local._unlink import NOT_A_FILE, NOT_TRIED, remove, steady_ns

_PLAIN = "file:///"
_MISLEADING = frozenset(("", ".", ".."))
"""Segments that would lead elsewhere than they seem to."""

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNAVAILABLE = frozenset(
    {errno.EAGAIN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT}
)
"""A disk across a network does not answer."""
_PAGE = 1000
"""Files between two questions: unlinking them takes some milliseconds."""
_UNASKED_NS = 100_000_000
"""For so long the lease is taken to be as it was when last looked at, within a page."""


class LocalDeleter:
    """The power to delete files. One thread per call: unlinking is limited by the disk, not by us."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """One answer per path, in the order asked."""
        if conditions is None:
            return await asyncio.to_thread(_delete, paths)
        answers: list[Deleted] = []
        for first in range(0, len(paths), _PAGE):
            page = paths[first : first + _PAGE]
            kept = await conditions.withheld(page)
            going = [path for path in page if path not in kept] if kept else page
            told = iter(await asyncio.to_thread(_delete_unless, conditions.ended, going))
            answers += [kept.get(path) or next(told) for path in page] if kept else told
        return answers

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove those that are empty and strictly below `root`, deepest first. `rmdir` refuses all others."""
        below = [place for place in map(Location.parse, directories) if root.contains(place)]
        deepest_first = sorted({place.path.rstrip("/") for place in below}, key=lambda path: -path.count("/"))
        return await asyncio.to_thread(_remove_directories, deepest_first)

    async def aclose(self) -> None:
        """Nothing is held between calls."""


def _delete_unless(ended: Callable[[], str | None], paths: Sequence[str]) -> list[Deleted]:
    """In the thread itself: it may have waited for its turn, or been frozen with the machine. Also in the middle of a
    page, and a slow disk may take longer for one than the lease lasts: what has taken long is looked at again."""
    answers: dict[int, Deleted] = {}
    left = list(range(len(paths)))
    while left:
        until = steady_ns() + _UNASKED_NS  # counted from before the question
        if why := ended():
            answers.update((index, not_sent(paths[index], why)) for index in left)
            break
        told = _attempt([paths[index] for index in left], until)
        answers.update((left[at], answer) for at, answer in told.items())
        left = [index for index in left if index not in answers]
    return [answers[index] for index in range(len(paths))]


def _delete(paths: Sequence[str]) -> list[Deleted]:
    told = _attempt(paths, 0)
    return [told[index] for index in range(len(paths))]


def _attempt(paths: Sequence[str], until: int) -> dict[int, Deleted]:
    """Answers by index, of those that were begun before a moment of the steady clock; all of them if it is 0."""
    answers: dict[int, Deleted] = {}
    exact: dict[int, bytes] = {}
    neighbours: dict[bytes, list[int]] = {}
    for index, path in enumerate(paths):
        try:
            exact[index] = place = _exact(path)
        except ValueError as exc:
            answers[index] = Deleted(path=path, fate=DeleteStatus.FAILED, why=str(exc))
        else:
            neighbours.setdefault(place[: place.rindex(b"/")], []).append(index)
    order = [index for inside in neighbours.values() for index in inside]
    for index, (code, reached) in zip(order, remove([exact[index] for index in order], until=until), strict=True):
        if code != NOT_TRIED:
            answers[index] = _answer(paths[index], exact[index], code, reached)
    return answers


def _answer(path: str, exact: bytes, code: int, reached: int) -> Deleted:
    if code == 0:
        return Deleted(path=path, fate=DeleteStatus.DELETED)
    if code == errno.ENOENT:
        return Deleted(path=path, fate=DeleteStatus.ALREADY_GONE)
    if code == NOT_A_FILE:
        why = "not a regular file"
    elif reached and code in (errno.ENOTDIR, errno.ELOOP):
        why = f"{os.fsdecode(exact[:reached])} is a link or no directory; nothing is deleted through it"
    else:
        return Deleted(path=path, fate=DeleteStatus.FAILED, why=os.strerror(code), kind=_kind(code))
    return Deleted(path=path, fate=DeleteStatus.FAILED, why=why)


def _kind(code: int) -> FailureKind:
    if code in _DENIED:
        return FailureKind.DENIED
    return FailureKind.UNAVAILABLE if code in _UNAVAILABLE else FailureKind.OTHER


def _remove_directories(paths: Sequence[str]) -> int:
    # Not empty, in use, not ours or gone already: an empty directory left behind costs nothing.
    return sum(code == 0 for code, _ in remove(list(_plain_only(paths)), directories=True))


def _plain_only(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            yield _exact(f"file://{path}")
        except ValueError:
            continue


def _exact(address: str) -> bytes:
    """The absolute path of a local address, as the file system knows it. ValueError if it is not a plain one."""
    path = local_path(address)
    if not path.startswith("/") or "\0" in path or not _MISLEADING.isdisjoint(path[1:].split("/")):
        raise ValueError("not a plain absolute path")
    return os.fsencode(path)


def local_path(address: str) -> str:
    """The path of a local address, as `Location.parse` gives it: most addresses need no parsing."""
    if address.startswith(_PLAIN):
        return address[len(_PLAIN) - 1 :]
    place = Location.parse(address)
    if place.scheme != "file":
        raise ValueError(f"not on a local disk: {address}")
    return place.path
