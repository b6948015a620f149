"""Read a tree of directories in plain Python: the same as `_walk`, where that is not compiled.

Several threads read one tree: each takes a directory from a shared stack, reads it, and pushes its subdirectories.
Below the root every directory is opened from its parent's handle without following a link, so nothing outside is ever
read. An incomplete tree never looks complete: an error is raised in every thread, and only what has been deleted in the
meantime is left out."""

from __future__ import annotations

import errno
import os
import stat
import threading
from array import array
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from lakesweep.storage.local.unlink_plain import NotOpened, age_ms, open_below, open_top, refuse_nul

_MOST_ROWS = 1 << 20
_TEXT_PER_READ = 16 << 20
"""Bytes of paths after which a read ends early: memory is bounded however long they are."""
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""The directory vanished, or was replaced by a file or a link: nothing to list there."""


class Rows:
    """Files that were read, as columns in Arrow's layout."""

    def __init__(self, limit: int) -> None:
        if not 0 < limit <= _MOST_ROWS:
            raise ValueError(f"{limit} rows at once")
        self.text = bytearray()
        self._ends = array("i", [0])
        self._sizes = array("q")
        self._times = array("q")
        self._columns: tuple[pa.Buffer, ...] = ()

    def append(self, path: bytes, size: int, time_ms: int) -> None:
        self.text += path
        self._ends.append(len(self.text))
        self._sizes.append(size)
        self._times.append(time_ms)

    @property
    def count(self) -> int:
        return len(self._sizes)

    @property
    def buffers(self) -> tuple[tuple[int, int], ...]:
        """Address and length of these buffers: offsets and text of the paths, sizes, times in ms. Valid as long as this
        object lives."""
        if not self._columns:
            self._columns = tuple(map(pa.py_buffer, (self._ends, self.text, self._sizes, self._times)))
        return tuple((column.address, column.size) for column in self._columns)


class Tree:
    """What is below `root`, or only in its directory `below`, which may not be reached through a link; the root may be
    one. Unless `deep`, only the files right there. Paths are `prefix`, then the place below the root. A file's time is
    the younger of its mtime and ctime, or its mtime alone unless `by_change`."""

    def __init__(self, root: bytes, below: bytes, prefix: bytes, *, deep: bool, by_change: bool) -> None:
        self.handle = -1
        refuse_nul(root)
        refuse_nul(below)
        self.root, self.prefix, self.deep, self.by_change = root, prefix, deep, by_change
        self.stopped = False
        self._failure: tuple[int, bytes] | None = None
        self._changed = threading.Condition()
        self._stack = [below]
        self._busy = 0
        self._skipped = 0

    def __del__(self) -> None:
        self.close()

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """Close the root. No reader may be running."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    @property
    def waiting(self) -> int:
        """The number of directories that no reader has taken yet."""
        return len(self._stack)

    def take_skipped(self) -> int:
        """The number of files whose names are not UTF-8; each is counted in one call only."""
        with self._changed:
            skipped, self._skipped = self._skipped, 0
        return skipped

    def skip(self) -> None:
        """Count a file whose name is not UTF-8. No table format writes such a name and no address can spell it, so the
        file can be neither referenced nor deleted: it is counted and stays."""
        with self._changed:
            self._skipped += 1

    def push(self, path: bytes) -> None:
        with self._changed:
            self._stack.append(path)
            self._changed.notify()

    def take(self) -> bytes | None:
        """A directory to read, or None if the tree is read or has failed. Waits as long as another reader may still
        find directories."""
        with self._changed:
            while not (self.stopped or self._failure):
                if self._stack:
                    self._busy += 1
                    return self._stack.pop()
                if not self._busy:
                    break
                self._changed.wait()
        return None

    def done(self, path: bytes, failure: int) -> None:
        with self._changed:
            self._busy -= 1
            if failure and not self._failure:
                self._failure = failure, path
            if failure or not self._busy:
                self._changed.notify_all()

    def check(self) -> None:
        """Raise the first error of any reader."""
        if self._failure:
            number, place = self._failure
            raise OSError(number, os.strerror(number), os.fsdecode(place))


class Reader:
    """One thread's share of a tree. Its creator closes it while its thread is not reading."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._path: bytes | None = None
        self._handle = -1
        self._entries: Iterator[os.DirEntry[str]] | None = None
        self._is_text = True

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory that is being read, if any. The tree can then never be complete, so all readers stop."""
        if self._path is not None:
            self._tree.stop()
            self._leave(0)

    def read(self, limit: int) -> Rows | None:
        """Up to this many files, or None at the end of the tree and after `stop`. An OSError names the directory in
        which it happened, relative to the root."""
        rows = Rows(limit)
        try:
            while rows.count < limit and len(rows.text) < _TEXT_PER_READ:
                if self._path is None and not self._enter():
                    break
                if self._entries is not None and not self._some(rows, limit):
                    break
        except BaseException:  # unexpected: the others must neither wait for this directory nor count it as read
            if self._path is not None:
                self._leave(errno.EIO)
            raise
        self._tree.check()
        return rows if rows.count and not self._tree.stopped else None

    def _enter(self) -> bool:
        """Take and open a directory. One that has been deleted counts as done and is not opened."""
        self._path = self._tree.take()
        if self._path is None:
            return False
        self._is_text = _is_utf8(self._tree.prefix + self._path)
        try:
            if self._tree.handle < 0:
                # The first directory of all: the others are only found, and so opened, after it.
                self._tree.handle = open_top(self._tree.root)
            self._handle = open_below(self._tree.handle, self._path)
            self._entries = os.scandir(self._handle)
        except OSError as exc:
            self._leave(0 if exc.errno in _GONE and self._handle < 0 else exc.errno or errno.EIO)
        return True

    def _leave(self, failure: int) -> None:
        entries, self._entries = self._entries, None
        if entries is not None:
            entries.close()  # type: ignore[attr-defined]  # a scandir
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
        path, self._path = self._path, None
        if path is not None:
            self._tree.done(path, failure)

    def _some(self, rows: Rows, limit: int) -> bool:
        """Read entries of the open directory until it ends or there are enough rows. False if the walk was stopped."""
        assert self._entries is not None  # noqa: S101 - for the type checker: `read` asks
        while rows.count < limit and len(rows.text) < _TEXT_PER_READ:
            if self._tree.stopped:
                return False
            try:
                entry = next(self._entries, None)
                if entry is None:
                    self._leave(0)
                    return True
                # Links, sockets and devices are not files of a table: not listed, hence never deleted.
                if entry.is_dir(follow_symlinks=False):
                    self._found(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    self._look(entry, rows)
            except OSError as exc:
                self._leave(exc.errno or errno.EIO)
                return False
        return True

    def _look(self, entry: os.DirEntry[str], rows: Rows) -> None:
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                self._add(rows, os.fsencode(entry.name), status)
            elif stat.S_ISDIR(status.st_mode):
                self._found(entry.name)

    def _found(self, name: str) -> None:
        if self._tree.deep:
            self._tree.push(b"%s/%s" % (self._path, os.fsencode(name)) if self._path else os.fsencode(name))

    def _add(self, rows: Rows, name: bytes, status: os.stat_result) -> None:
        if not (self._is_text and _is_utf8(name)):
            self._tree.skip()
            return
        below = b"%s/%s" % (self._path, name) if self._path else name
        rows.append(self._tree.prefix + below, status.st_size, age_ms(status, self._tree.by_change))


def open_directory(root: bytes, below: bytes) -> int:
    """Open a directory below a root; only the root may be a link."""
    refuse_nul(root)
    refuse_nul(below)
    handle = open_top(root)
    try:
        return open_below(handle, below)
    except NotOpened as exc:
        raise OSError(exc.errno, exc.strerror) from exc  # as the subclass for its errno
    finally:
        os.close(handle)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
