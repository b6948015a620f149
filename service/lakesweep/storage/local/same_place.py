"""Find local places that are the same directory: links and bind mounts give a directory several names.

Reads only. A directory is identified by device and inode. What contains it follows from its path within its file
system, which the kernel's mount table shows: the path through a bind mount does not contain the real parents."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path

from lakesweep.model.location import Location
from lakesweep.ports.surroundings import DirectoryIdentity
from lakesweep.storage.local.walk import irregular

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


async def identify(places: Iterable[Location]) -> dict[Location, DirectoryIdentity]:
    """The identity of each local place on disk. Places of other stores and missing ones are left out."""
    local = {place for place in places if place.scheme == "file"}
    return await asyncio.to_thread(_identified, local) if local else {}


def _identified(places: Iterable[Location]) -> dict[Location, DirectoryIdentity]:
    mounts = _mounts()
    found = {}
    for place in places:
        try:
            path = os.path.realpath(place.path)
            status = os.stat(path)  # noqa: PTH116 - plain text, for thousands of tables
        except (OSError, ValueError):
            continue
        here = _path_in_file_system(path, mounts)
        inside = {
            point[len(path) :].strip("/"): _path_in_file_system(point, mounts)
            for point in mounts
            if point.startswith(f"{path.rstrip('/')}/")
        }
        found[place] = DirectoryIdentity(
            inode=(status.st_dev, status.st_ino),
            path=here,
            # A directory that is mounted on itself keeps its name.
            mounted=tuple(mounted for below, mounted in inside.items() if mounted != f"{here}{below}/"),
        )
    return found


def _mounts() -> dict[str, tuple[str, str]]:
    """File system and directory in it, by mount point. None where the kernel has no mount table."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}
    fields = (line.split(" ", 5) for line in lines)
    return {_plain(point): (device, _plain(root)) for _, _, device, root, point, _ in fields}


def _plain(text: str) -> str:
    """The kernel escapes spaces and the like in octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _path_in_file_system(path: str, mounts: dict[str, tuple[str, str]]) -> str:
    """`device:path/`, so that a place starts with another exactly if it is inside it."""
    point = path
    while point not in mounts and point != "/":
        point = os.path.dirname(point)  # noqa: PTH120 - likewise
    device, root = mounts.get(point, ("", "/"))
    return f"{device}:{root.rstrip('/')}/{path[len(point) :].strip('/')}".rstrip("/") + "/"


class RealPaths:
    """Where files really are: as links lead there, and in their file system. Each directory is looked up once.
    Blocking."""

    def __init__(self) -> None:
        self._mounts = _mounts()
        self._directories: dict[str, tuple[str, str]] = {}

    def of_directory(self, path: str) -> tuple[str, str]:
        """Both with a slash at the end."""
        if path not in self._directories:
            real = os.path.realpath(path)
            self._directories[path] = (f"{real.rstrip('/')}/", _path_in_file_system(real, self._mounts))
        return self._directories[path]

    def of_file(self, path: str) -> tuple[str, str]:
        above, _, name = path.rpartition("/")
        real, in_file_system = self.of_directory(above or "/")
        if os.path.islink(f"{real}{name}"):  # noqa: PTH114 - plain text, for millions of files
            return self.of_file(os.path.realpath(f"{real}{name}"))
        return f"{real}{name}", f"{in_file_system}{name}"


async def linked(places: Iterable[Location]) -> list[Location]:
    """The final targets of links below local places, and of links below those: reading the place reads them."""

    def follow() -> list[Location]:
        found: dict[str, None] = {}
        waiting = [place.path for place in places if place.is_local]
        while waiting:
            links = [link.removeprefix("file://") for link in irregular(waiting.pop().rstrip("/") or "/")]
            new = [path for path in map(os.path.realpath, links) if path not in found]
            found |= dict.fromkeys(new)
            waiting += filter(os.path.isdir, new)
        return [Location("file", "", path) for path in found]

    return await asyncio.to_thread(follow)
