"""Delete local files, by exact path, one regular file at a time.

Never a directory with anything in it, never a link, and never through one: every directory on the way is opened
without following links, so a path that leads elsewhere fails instead of deleting there. `_unlink` does that, once for
all files of a call that share a directory, and without the interpreter lock."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakesweep.model.errors import FailureKind
from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.ports.deleter import ANOTHER_OBJECT, Conditions, Deleted, DeleteStatus, not_sent
from lakesweep.storage.local.system_calls import ANOTHER_FILE, NOT_A_FILE, NOT_TRIED, remove, steady_ns
from lakesweep.storage.local.unlink_plain import is_same
from lakesweep.storage.spec import NothingToClose
from lakesweep.telemetry import requests

_PLAIN = "file:///"
_MISLEADING = frozenset(("", ".", ".."))
"""Path segments that would lead elsewhere."""

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNAVAILABLE = frozenset(
    {errno.EAGAIN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT}
)
"""A network disk does not answer."""
PAGE = 1000
"""Files between two checks of the conditions: unlinking them takes a few milliseconds."""
UNASKED_NS = 100_000_000
"""Within a page, the last check of the lease is trusted for this long."""


class LocalDeleter(NothingToClose):
    """Deletes files. One thread per call: the disk is the limit, not the thread."""

    def __init__(self, age_by: AgeBy = AgeBy.CHANGE) -> None:
        """`age_by` as for the listing that times are compared with."""
        self._age_by = age_by

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        if conditions is None:
            requests.sent("delete")
            return await asyncio.to_thread(_delete, paths)
        answers: list[Deleted] = []
        for first in range(0, len(paths), PAGE):
            page = paths[first : first + PAGE]
            kept = await conditions.withheld(page)
            going = [path for path in page if path not in kept] if kept else page
            requests.sent("delete")
            judged = Judged(written_ms=conditions.written_ms, age_by=self._age_by)
            results = iter(await asyncio.to_thread(_delete_unless, conditions.ended, going, judged))
            answers += [kept.get(path) or next(results) for path in page] if kept else results
        return answers

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove directories that are empty and strictly below `root`, deepest first. `rmdir` refuses all others."""
        below = [place for place in map(Location.parse, directories) if root.contains(place)]
        deepest_first = sorted({place.path.rstrip("/") for place in below}, key=lambda path: -path.count("/"))
        # Not empty, in use, not ours or gone already: an empty directory left behind costs nothing.
        codes = await asyncio.to_thread(lambda: remove(list(_plain_only(deepest_first)), directories=True))
        return sum(code == 0 for code, _ in codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judged files, identified by their times: a disk has no etags."""

    written_ms: Mapping[str, int] = field(default_factory=dict)
    """Times by address, as they were listed."""
    age_by: AgeBy = AgeBy.CHANGE

    def means(self, address: str, exact: bytes) -> bool:
        """Is this the file that was judged? If it cannot be read, the deletion itself reports why."""
        written = self.written_ms.get(address)
        try:
            return written is None or is_same(os.lstat(exact), written, self.by_change)
        except OSError:
            return True

    @property
    def by_change(self) -> bool:
        return self.age_by is AgeBy.CHANGE


def _delete_unless(ended: Callable[[], str | None], paths: Sequence[str], judged: Judged) -> list[Deleted]:
    """Checked in the thread itself, which may have waited for its turn or been suspended with the machine. Checked
    again within a page too, because a slow disk may take longer for a page than the lease lasts."""
    answers: dict[int, Deleted] = {}
    left = list(range(len(paths)))
    while left:
        until = steady_ns() + UNASKED_NS  # measured from before the check
        if why := ended():
            answers.update((index, not_sent(paths[index], why)) for index in left)
            break
        results = _attempt([paths[index] for index in left], until, judged)
        answers.update((left[at], answer) for at, answer in results.items())
        left = [index for index in left if index not in answers]
    return [answers[index] for index in range(len(paths))]


def _delete(paths: Sequence[str]) -> list[Deleted]:
    results = _attempt(paths, 0, Judged())
    return [results[index] for index in range(len(paths))]


def _attempt(paths: Sequence[str], until: int, judged: Judged) -> dict[int, Deleted]:
    """Results by index, for those begun before a moment of the steady clock; for all of them if it is 0."""
    answers: dict[int, Deleted] = {}
    exact: dict[int, bytes] = {}
    neighbours: dict[bytes, list[int]] = {}
    for index, path in enumerate(paths):
        try:
            exact[index] = place = exact_path(path)
        except ValueError as exc:
            answers[index] = Deleted(path=path, status=DeleteStatus.FAILED, why=str(exc))
        else:
            neighbours.setdefault(place[: place.rindex(b"/")], []).append(index)
    order = [index for inside in neighbours.values() for index in inside]
    times = [judged.written_ms.get(paths[index]) for index in order] if judged.written_ms else None
    codes = remove([exact[index] for index in order], until=until, written_ms=times, by_change=judged.by_change)
    for index, (code, reached) in zip(order, codes, strict=True):
        if code != NOT_TRIED:
            answers[index] = _answer(paths[index], exact[index], code, reached)
    return answers


def _answer(path: str, exact: bytes, code: int, reached: int) -> Deleted:
    if code == 0:
        return Deleted(path=path, status=DeleteStatus.DELETED)
    if code == errno.ENOENT:
        return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
    if code == ANOTHER_FILE:
        return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
    if code == NOT_A_FILE:
        why = "not a regular file"
    elif reached and code in (errno.ENOTDIR, errno.ELOOP):
        why = f"{os.fsdecode(exact[:reached])} is a link or not a directory; nothing is deleted through it"
    else:
        return Deleted(path=path, status=DeleteStatus.FAILED, why=os.strerror(code), kind=failure_kind(code))
    return Deleted(path=path, status=DeleteStatus.FAILED, why=why)


def failure_kind(code: int) -> FailureKind:
    if code in _DENIED:
        return FailureKind.DENIED
    return FailureKind.UNAVAILABLE if code in _UNAVAILABLE else FailureKind.OTHER


def _plain_only(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            yield exact_path(f"file://{path}")
        except ValueError:
            continue


def exact_path(address: str) -> bytes:
    """The absolute path of a local address, as bytes. ValueError if it is not a plain one."""
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
