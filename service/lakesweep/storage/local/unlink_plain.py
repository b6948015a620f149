"""Unlink files in plain Python: the same as `_unlink`, where that is not compiled.

Every directory on the way is opened from its parent's handle without following a link, and names are removed from that
handle, so nothing is ever removed through a link."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple

NOT_A_FILE = -1
"""The result of `remove` for something that is not a regular file. Other results are 0 or an errno."""
NOT_TRIED = -2
"""The result for a path that was not tried because time was up."""
ANOTHER_FILE = -3
"""The result for a file that was not removed because it was not written when it should have been."""
_SAME_TIME_MS = 2
"""A listing rounds times up to milliseconds."""
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of the years 1 to 9999. Some file systems store any number, and one that is not a date must not turn from the future
into the past."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ns() -> int:
    """Nanoseconds of a clock that nobody sets and that keeps running while the process or the machine is suspended."""
    return time.clock_gettime_ns(_CLOCK)


def age_ms(status: os.stat_result, by_change: bool) -> int:
    """The time that counts as a file's age. `mv` and `cp -p` keep the old mtime; only the kernel sets the ctime."""
    modified = _in_ms(status.st_mtime_ns)
    return max(modified, _in_ms(status.st_ctime_ns)) if by_change else modified


def _in_ms(at_ns: int) -> int:
    """Rounded up: a file may look a millisecond younger than it is, never older."""
    seconds = at_ns // 1_000_000_000
    if seconds >= _LAST_SECOND:
        return _LAST_SECOND * 1000
    if seconds < _FIRST_SECOND:
        return _FIRST_SECOND * 1000
    return -(-at_ns // 1_000_000)


def is_same(status: os.stat_result, written_ms: int | None, by_change: bool) -> bool:
    """Was this file written then? None means at any time."""
    return written_ms is None or abs(age_ms(status, by_change) - written_ms) <= _SAME_TIME_MS


def refuse_nul(path: bytes) -> None:
    """For the system a path ends at its first NUL: the rest would be silently ignored."""
    if 0 in path:
        raise ValueError("a path with a NUL in it")


class NotOpened(OSError):
    """A directory on the way could not be opened. `reached` is the end of the tried segment in the path."""

    reached = 0


def open_top(path: bytes) -> int:
    """Open a directory that may be a link."""
    return os.open(path, _DIRECTORY)


def open_below(root: int, path: bytes) -> int:
    """Open the directory `path` below an open one without following any link. Raises NotOpened. A leading slash is
    ignored."""
    handle = os.dup(root)
    start = 1 if path[:1] == b"/" else 0
    while start < len(path):
        slash = path.find(b"/", start)
        end = len(path) if slash < 0 else slash
        try:
            inner = os.open(path[start:end], _DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
        except OSError as exc:
            failed = NotOpened(exc.errno, exc.strerror)
            failed.reached = end
            raise failed from exc
        finally:
            os.close(handle)
        handle = inner
        start = end + 1
    return handle


def remove(
    paths: list[bytes],
    *,
    directories: bool = False,
    until: int = 0,
    written_ms: list[int | None] | None = None,
    by_change: bool = True,
) -> list[tuple[int, int]]:
    """Remove regular files, or with `directories` empty directories, in this order; best if those of one directory are
    neighbours. Paths are absolute bytes without NUL, empty or dot segments. None is begun at or after `until`, a moment
    of `steady_ns`, if there is one. A file whose time, by its change or by its modification alone, is not the one in
    `written_ms` stays; None there means any.

    Returns two numbers for each path: 0, NOT_A_FILE, NOT_TRIED, ANOTHER_FILE or an errno; and 0, or how much of the
    path had been tried when a directory on the way could not be opened."""
    if written_ms is not None and len(written_ms) != len(paths):
        raise ValueError("not a time for each path")
    asked = []
    for path, written in zip(paths, written_ms or [None] * len(paths), strict=True):
        refuse_nul(path)
        asked.append(_Removal(path[: path.rindex(b"/")], path[path.rindex(b"/") + 1 :], written))
    try:
        top = open_top(b"/")
    except OSError as exc:
        return [(exc.errno or NOT_TRIED, 0)] * len(asked)
    try:
        return _remove_each(top, asked, until, lambda parent, one: _remove_name(parent, one, directories, by_change))
    finally:
        os.close(top)


class _Removal(NamedTuple):
    directory: bytes
    name: bytes
    written_ms: int | None


def _remove_each(
    top: int, asked: list[_Removal], until: int, remove_one: Callable[[int, _Removal], int]
) -> list[tuple[int, int]]:
    """Files of one directory share its handle. That is as safe as one handle each: it was reached without a link, so it
    is the directory that was at this path a moment ago. If a link or another directory replaces it meanwhile, the
    handle stays the same, and the replacement is not touched."""
    answers: list[tuple[int, int]] = []
    opened: bytes | None = None
    parent, failure = -1, (0, 0)
    try:
        for one in asked:
            if until and steady_ns() >= until:  # checked for each: the process may have been suspended since the last
                return answers + [(NOT_TRIED, 0)] * (len(asked) - len(answers))
            if one.directory != opened:
                opened = one.directory
                if parent >= 0:
                    os.close(parent)
                    parent = -1
                try:
                    parent = open_below(top, one.directory)
                except NotOpened as exc:
                    failure = (exc.errno or NOT_TRIED, exc.reached)
                except OSError as exc:
                    failure = (exc.errno or NOT_TRIED, 0)
            answers.append((remove_one(parent, one), 0) if parent >= 0 else failure)
    finally:
        if parent >= 0:
            os.close(parent)
    return answers


def _remove_name(parent: int, asked: _Removal, directory: bool, by_change: bool) -> int:
    """0, NOT_A_FILE, ANOTHER_FILE or an errno."""
    try:
        if directory:
            os.rmdir(asked.name, dir_fd=parent)
            return 0
        status = os.stat(asked.name, dir_fd=parent, follow_symlinks=False)
        if not is_same(status, asked.written_ms, by_change):
            return ANOTHER_FILE
        if not stat.S_ISREG(status.st_mode):
            return NOT_A_FILE
        os.unlink(asked.name, dir_fd=parent)
    except OSError as exc:
        return exc.errno or NOT_TRIED
    return 0
