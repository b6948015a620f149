"""Open local paths only below given places, without following links, and only regular files.

A place itself may be a link, because the operator named it; nothing below it may be one. A link is refused with the
same message as a path outside of all places, wherever it leads. Without places every path is opened as usual, but still
only if it is a regular file, and without waiting for the other end of a pipe."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from lakesweep.model.errors import NotFound, OutsideRoot, TooLarge
from lakesweep.model.location import Location
from lakesweep.storage.local.system_calls import open_directory
from lakesweep.storage.local.walk import translated

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 16 * 1024 * 1024
_NO_FILE = "no such file"


class Reach:
    """Access to files below some places; without places, to all files."""

    def __init__(self, places: Sequence[Location] = ()) -> None:
        self._places = tuple(place for place in places if place.scheme == "file")
        self._is_confined = bool(places)

    def read(self, location: Location, limit: int | None) -> bytes:
        """A whole regular file of at most `limit` bytes."""
        with self._parent(location) as (parent, name, follow):
            handle = self._open(location, parent, name, follow)
        with os.fdopen(handle, "rb", buffering=0) as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise NotFound(location.raw, "not a regular file")
            if limit is None:
                return file.readall() or b""
            if found.st_size > limit:
                raise TooLarge(location.raw, limit)
            return _read_up_to(file, limit, location)

    def stat(self, location: Location) -> os.stat_result:
        """`stat` of a file; a link below a place is refused."""
        with self._parent(location) as (parent, name, follow):
            found = os.stat(name, dir_fd=parent, follow_symlinks=follow)
        if stat.S_ISLNK(found.st_mode):
            raise OutsideRoot(location.raw)
        return found

    def way(self, root: Location) -> tuple[str, str]:
        """The place that contains a directory, and the relative path from there. No disk access."""
        if not self._is_confined:
            return root.path.rstrip("/") or "/", ""
        place, segments = self._found(root)
        return place, "/".join(segments)

    def top_and_below(self, root: Location) -> tuple[str, str]:
        """The same, and no link is followed on the way. Raises OutsideRoot if there is one, and other StorageErrors if
        the directory is there and cannot be opened."""
        place, below = self.way(root)
        if self._is_confined:
            try:
                os.close(self._directory(root, place, below))
            except FileNotFoundError:
                pass
            except OSError as exc:
                raise translated(exc, root.raw) from exc
        return place, below

    @contextmanager
    def new_parent(self, location: Location) -> Iterator[tuple[int, str]]:
        """The directory of a new file, created if necessary, and the file's name."""
        if not self._is_confined:
            directory, _, name = location.path.rpartition("/")
            os.makedirs(directory or "/", exist_ok=True)  # noqa: PTH103 - raw text, as in all of this module
            handle = os.open(directory or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            place, segments = self._found(location)
            if not segments:
                raise OutsideRoot(location.raw)
            *above, name = segments
            handle = self._made(location, place, above)
        try:
            yield handle, name
        finally:
            os.close(handle)

    def _made(self, location: Location, place: str, segments: Sequence[str]) -> int:
        handle = open_directory(os.fsencode(place), b"")
        for segment in segments:
            try:
                with suppress(FileExistsError):
                    os.mkdir(segment, dir_fd=handle)
                inner = os.open(segment, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            except OSError as exc:
                if exc.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise OutsideRoot(location.raw) from exc
                raise
            finally:
                os.close(handle)
            handle = inner
        return handle

    @contextmanager
    def _parent(self, location: Location) -> Iterator[tuple[int | None, str, bool]]:
        """The directory of a file, its name there, and whether that name may be a link."""
        if not self._is_confined:
            yield None, location.path, True
            return
        place, segments = self._found(location)
        if not segments:
            yield None, place, True
            return
        *above, name = segments
        handle = self._directory(location, place, "/".join(above))
        try:
            yield handle, name, False
        finally:
            os.close(handle)

    def _found(self, location: Location) -> tuple[str, list[str]]:
        """The innermost place around a path, and the remaining segments."""
        around = [place for place in self._places if place.as_directory() == location.as_directory()]
        around += [place for place in self._places if place.contains(location)]
        if not around or "\0" in location.path:
            raise OutsideRoot(location.raw)
        place = max(around, key=lambda one: len(one.path)).path.rstrip("/")
        below = location.path[len(place) :]
        return place or "/", [segment for segment in below.split("/") if segment]

    def _directory(self, location: Location, place: str, below: str) -> int:
        try:
            return open_directory(os.fsencode(place), os.fsencode(below))
        except OSError as exc:
            if exc.errno == errno.ELOOP or (exc.errno == errno.ENOTDIR and _has_link(place, below)):
                raise OutsideRoot(location.raw) from exc
            if exc.errno in (errno.ENOENT, errno.ENOTDIR):
                raise FileNotFoundError(_NO_FILE) from exc
            raise

    @staticmethod
    def _open(location: Location, parent: int | None, name: str, follow: bool) -> int:
        try:
            return os.open(name, _READ if follow else _READ | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as exc:
            if exc.errno == errno.ELOOP and not follow:
                raise OutsideRoot(location.raw) from exc
            if exc.errno == errno.ENXIO:
                raise NotFound(location.raw, "not a regular file") from exc
            raise


def _has_link(place: str, below: str) -> bool:
    segments = below.split("/")
    return any(Path(place, *segments[: count + 1]).is_symlink() for count in range(len(segments)))


def _read_up_to(file: FileIO, limit: int, location: Location) -> bytes:
    """Read at most `limit` bytes: a file may be longer than `stat` reports, or endless."""
    parts: list[bytes] = []
    left = limit + 1
    while left > 0 and (part := file.read(min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        raise TooLarge(location.raw, limit)
    return parts[0] if len(parts) == 1 else b"".join(parts)
