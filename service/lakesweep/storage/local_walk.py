"""Walk one local tree: files with size and time, as Arrow batches. Blocking; runs in one worker thread per root.

Measured: one thread with `os.scandir` and a stat relative to the open directory is nearly as fast as `find`;
more threads are slower, since every stat gives up and takes back the interpreter lock.

Never follows a symbolic link below the root, never lists one, and never ends early without an error: what
cannot be read raises, only what has gone in the meantime is left out.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep.cleanup.ports import LISTING_SCHEMA
from lakesweep.model.errors import Denied, StorageError, Unavailable

BATCH_ROWS = 8192

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Vanished, or replaced by a file or a link: nothing of ours is there any more."""

log = structlog.get_logger(__name__)


class Walk:
    """One walk over the tree at `root` (an absolute path), or only over what is right there unless `deep`. With
    `follow` the root itself may be a link."""

    def __init__(self, root: str, batch_rows: int = BATCH_ROWS, *, follow: bool = True, deep: bool = True) -> None:
        self._root = root
        self._follow = follow
        self._deep = deep
        self._batch_rows = batch_rows
        self._stopped = threading.Event()
        self._paths: list[str] = []
        self._statuses: list[os.stat_result] = []
        self._unnameable = 0

    def stop(self) -> None:
        """End the walk soon. For a consumer that went away; whoever stops does not look at the rest."""
        self._stopped.set()

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Every regular file below the root, in batches of LISTING_SCHEMA."""
        waiting = [self._root]
        while waiting and not self._stopped.is_set():
            directory = waiting.pop()
            yield from self._directory(directory, waiting, is_root=self._follow and directory == self._root)
        if self._paths:
            yield self._flush()
        if self._unnameable:
            log.warning("names_not_utf8_skipped", root=self._root, skipped=self._unnameable)

    def _directory(self, path: str, waiting: list[str], *, is_root: bool) -> Generator[pa.RecordBatch, None, None]:
        prefix = "file:///" if path == "/" else f"file://{path}/"
        with _open_directory(path, is_root=is_root) as handle:
            if handle is None:
                return
            with os.scandir(handle) as entries:
                while some := list(islice(entries, self._batch_rows)):
                    self._take(some, prefix, waiting)
                    if len(self._paths) >= self._batch_rows:
                        yield self._flush()

    def _take(self, entries: list[os.DirEntry[str]], prefix: str, waiting: list[str]) -> None:
        """The files among some entries of a directory. Written out: it takes all the time that the disk does not."""
        paths, statuses, deep = self._paths, self._statuses, self._deep
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                try:
                    statuses.append(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
                paths.append(prefix + entry.name)
            elif deep and entry.is_dir(follow_symlinks=False):
                waiting.append(f"{prefix[7:]}{entry.name}")
            # Links, sockets and devices are not files of a table: not listed, hence never deleted.

    def _flush(self) -> pa.RecordBatch:
        try:
            paths = pa.array(self._paths, pa.string())
        except UnicodeEncodeError:
            self._drop_unnameable()
            paths = pa.array(self._paths, pa.string())
        # Rounded up: a file may look a millisecond younger than it is, never older.
        times = pa.array([status.st_mtime for status in self._statuses], pa.float64())
        milliseconds = pc.ceil(pc.multiply(times, 1000.0)).cast(pa.int64())
        batch = pa.record_batch(
            [
                paths,
                pa.array([status.st_size for status in self._statuses], pa.int64()),
                milliseconds.cast(LISTING_SCHEMA.field("modified_at").type),
                pa.nulls(len(paths), pa.string()),
            ],
            schema=LISTING_SCHEMA,
        )
        self._paths, self._statuses = [], []
        return batch

    def _drop_unnameable(self) -> None:
        """Leave out names that are not UTF-8. No table format writes one and no address can spell it, so such a
        file can be neither referenced nor deleted; it is counted and stays."""
        kept = [row for row in zip(self._paths, self._statuses, strict=True) if _is_text(row[0])]
        self._unnameable += len(self._paths) - len(kept)
        self._paths = [path for path, _ in kept]
        self._statuses = [status for _, status in kept]


def directories(root: str, *, is_root: bool = True) -> list[str]:
    """The names of the directories right below, in order. A name that is not UTF-8 is left out, as in a walk."""
    with _open_directory(root, is_root=is_root) as handle:
        if handle is None:
            return []
        with os.scandir(handle) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in found if _is_text(name))


@contextmanager
def _open_directory(path: str, *, is_root: bool) -> Generator[int | None, None, None]:
    """A handle on the directory, or None if it is not there; every other error is translated, also later ones."""
    # The root is what the operator configured and may be a link; below it links are never followed, not even
    # one that took a directory's place after it was listed.
    flags = os.O_RDONLY | os.O_DIRECTORY | (0 if is_root else os.O_NOFOLLOW)
    try:
        try:
            handle = os.open(path, flags)
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            yield None
            return
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as exc:
        raise translated(exc, f"file://{path}") from exc


def translated(exc: OSError, address: str) -> StorageError:
    """What an error of the file system means to the caller."""
    if isinstance(exc, PermissionError):
        return Denied(address, f"{exc.strerror}: the user that runs this service needs access to it")
    return Unavailable(address, exc.strerror or str(exc))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
