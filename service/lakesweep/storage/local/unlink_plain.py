"""Unlink files in plain Python: the same as `_unlink`, where that is not compiled.

Every directory on the way is opened from its parent's handle without following a link, and names are removed from that
handle, so nothing is ever removed through a link."""

from __future__ import annotations

import os
import stat
import time

NOT_A_FILE = -1
"""The result of `remove` for something that is not a regular file. Other results are 0 or an errno."""
NOT_TRIED = -2
"""The result for a path that was not tried because time was up."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_ns() -> int:
    """Nanoseconds of a clock that nobody sets and that keeps running while the process or the machine is suspended."""
    return time.clock_gettime_ns(_CLOCK)


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


def remove(paths: list[bytes], *, directories: bool = False, until: int = 0) -> list[tuple[int, int]]:
    """Remove regular files, or with `directories` empty directories, in this order; best if those of one directory are
    neighbours. Paths are absolute bytes without NUL, empty or dot segments. None is begun at or after `until`, a moment
    of `steady_ns`, if there is one.

    Returns two numbers for each path: 0, NOT_A_FILE, NOT_TRIED or an errno; and 0, or how much of the path had been
    tried when a directory on the way could not be opened."""
    names = []
    for path in paths:
        refuse_nul(path)
        names.append((path[: path.rindex(b"/")], path[path.rindex(b"/") + 1 :]))
    try:
        top = open_top(b"/")
    except OSError as exc:
        return [(exc.errno or NOT_TRIED, 0)] * len(names)
    try:
        return _remove_each(top, names, directories, until)
    finally:
        os.close(top)


def _remove_each(top: int, names: list[tuple[bytes, bytes]], directories: bool, until: int) -> list[tuple[int, int]]:
    """Files of one directory share its handle. That is as safe as one handle each: it was reached without a link, so it
    is the directory that was at this path a moment ago. If a link or another directory replaces it meanwhile, the
    handle stays the same, and the replacement is not touched."""
    answers: list[tuple[int, int]] = []
    opened: bytes | None = None
    parent, failure = -1, (0, 0)
    try:
        for directory, name in names:
            if until and steady_ns() >= until:  # checked for each: the process may have been suspended since the last
                return answers + [(NOT_TRIED, 0)] * (len(names) - len(answers))
            if directory != opened:
                opened = directory
                if parent >= 0:
                    os.close(parent)
                    parent = -1
                try:
                    parent = open_below(top, directory)
                except NotOpened as exc:
                    failure = (exc.errno or NOT_TRIED, exc.reached)
                except OSError as exc:
                    failure = (exc.errno or NOT_TRIED, 0)
            answers.append((_remove_name(parent, name, directories), 0) if parent >= 0 else failure)
    finally:
        if parent >= 0:
            os.close(parent)
    return answers


def _remove_name(parent: int, name: bytes, directory: bool) -> int:
    """0, NOT_A_FILE or an errno."""
    try:
        if directory:
            os.rmdir(name, dir_fd=parent)
            return 0
        if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return NOT_A_FILE
        os.unlink(name, dir_fd=parent)
    except OSError as exc:
        return exc.errno or NOT_TRIED
    return 0
