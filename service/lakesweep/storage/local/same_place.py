"""Which places on local disks are one directory, whatever they are called: links and bind mounts give it other names.

Reads only. A directory is its device and inode. What it lies inside of is told by its path in its file system, which
the kernel's list of mounts shows: the path through a bind mount leads past the directories that are really above it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path

from lakesweep.model.location import Location
from lakesweep.ports.surroundings import DirectoryIdentity

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


async def identify(places: Iterable[Location]) -> dict[Location, DirectoryIdentity]:
    """How each local place stands on disk; those of other stores and those that are not there are left out."""
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
            # What is mounted on itself has the name that it had before.
            mounted=tuple(mounted for below, mounted in inside.items() if mounted != f"{here}{below}/"),
        )
    return found


def _mounts() -> dict[str, tuple[str, str]]:
    """By mount point: which file system, and which of its directories. None where the kernel has no such list."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}
    fields = (line.split(" ", 5) for line in lines)
    return {_plain(point): (device, _plain(root)) for _, _, device, root, point, _ in fields}


def _plain(text: str) -> str:
    """The kernel writes spaces and the like in octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _path_in_file_system(path: str, mounts: dict[str, tuple[str, str]]) -> str:
    """`device:path/`, so that one place begins with another exactly if it lies inside."""
    point = path
    while point not in mounts and point != "/":
        point = os.path.dirname(point)  # noqa: PTH120 - likewise
    device, root = mounts.get(point, ("", "/"))
    return f"{device}:{root.rstrip('/')}/{path[len(point) :].strip('/')}".rstrip("/") + "/"
