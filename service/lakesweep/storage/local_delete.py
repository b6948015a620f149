"""Delete local files, by exact path, one regular file at a time.

Never a directory with anything in it, never a link, and never through one: every directory on the way is opened
without following links, so a path that leads elsewhere fails instead of deleting there.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakesweep.cleanup.deleter import Deleted, Fate
from lakesweep.model.location import Location

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class LocalDeleter:
    """The power to delete files. One thread per call: unlinking is limited by the disk, not by us."""

    async def delete(self, paths: Sequence[str]) -> list[Deleted]:
        """One answer per path, in the order asked."""
        return await asyncio.to_thread(lambda: [_delete(path) for path in paths])

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        """Remove those that are empty and strictly below `root`, deepest first. `rmdir` refuses all others."""
        below = [place for place in map(Location.parse, directories) if root.contains(place)]
        deepest_first = sorted({place.path.rstrip("/") for place in below}, key=lambda path: -path.count("/"))
        return await asyncio.to_thread(lambda: sum(_remove_directory(path) for path in deepest_first))

    async def aclose(self) -> None:
        """Nothing is held between calls."""


def _delete(path: str) -> Deleted:
    try:
        with _parent(Location.parse(path).path) as (parent, name):
            if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                return Deleted(path=path, fate=Fate.FAILED, why="not a regular file")
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return Deleted(path=path, fate=Fate.ALREADY_GONE)
    except (OSError, ValueError) as exc:
        return Deleted(path=path, fate=Fate.FAILED, why=getattr(exc, "strerror", None) or str(exc))
    return Deleted(path=path, fate=Fate.DELETED)


def _remove_directory(path: str) -> bool:
    try:
        with _parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)
    except (OSError, ValueError):
        # Not empty, in use, not ours or gone already: an empty directory left behind costs nothing.
        return False
    return True


@contextmanager
def _parent(path: str) -> Iterator[tuple[int, str]]:
    """A handle on the directory that really holds `path`, reached without a single link, and the last name."""
    *directories, name = path.split("/")[1:]
    if any(segment in ("", ".", "..") for segment in (*directories, name)):
        raise ValueError("not a plain absolute path")
    handle = os.open("/", _DIRECTORY)
    try:
        for at, segment in enumerate(directories):
            try:
                inner = os.open(segment, _DIRECTORY, dir_fd=handle)
            except NotADirectoryError as exc:
                place = "/" + "/".join(directories[: at + 1])
                raise ValueError(f"{place} is a link or no directory; nothing is deleted through it") from exc
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)
