"""Walk one local tree: files with size and time, as Arrow batches. Blocking; runs in a few worker threads per root.

Directories are read by `_walk`, compiled and without the interpreter lock, so that threads really run side by side;
here its columns become Arrow, without a copy, and its errors ours.

Never follows a symbolic link below the root, never lists one, and never ends early without an error: what
cannot be read raises, only what has gone in the meantime is left out."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import structlog

from lakesweep.model.errors import Denied, StorageError, Unavailable
from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.ports.storage import LISTING_SCHEMA, Part
from lakesweep.storage.local.system_calls import Reader, Rows, Tree, open_directory
from lakesweep.storage.local.unlink_plain import age_ms

_MOST_PER_WANTED = 20
"""More parts than this multiple of the wanted number cost more than they help."""
_DEEPEST = 3
"""The number of levels that are searched for parts."""
BATCH_ROWS = 16_384
"""Large enough that threads rarely compete for the interpreter lock; a few megabytes with typical paths."""

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""The directory vanished, or was replaced by a file or a link: nothing to list there."""
_EPOCH = datetime.fromtimestamp(0, UTC)

log = structlog.get_logger(__name__)


class Walk:
    """One walk over the tree at `root` (an absolute path), or only over its directory `below`, or only over what is
    right there unless `deep`. The root may be a link, for it is what the operator configured; nothing below it may."""

    def __init__(
        self,
        root: str,
        below: str = "",
        *,
        deep: bool = True,
        age_by: AgeBy = AgeBy.CHANGE,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        self._root = root
        self._batch_rows = batch_rows
        self._prefix = "file:///" if root == "/" else f"file://{root}/"
        places = (os.fsencode(place) for place in (root, below, self._prefix))
        self._tree = Tree(*places, deep=deep, by_change=age_by is AgeBy.CHANGE)

    def stop(self) -> None:
        """End the walk soon, for a consumer that went away. The rest is not read."""
        self._tree.stop()

    def close(self) -> None:
        """Close the root, after the last of the `batches` was closed."""
        self._tree.close()

    @property
    def has_more(self) -> bool:
        return self._tree.waiting > 0

    def batches(self, first_rows: int | None = None) -> Generator[pa.RecordBatch, None, None]:
        """Regular files below the root, in batches of LISTING_SCHEMA, the first of at most `first_rows`. Several may be
        iterated at once, each by its own thread: every file is in exactly one batch, and none ends before all files
        have been read."""
        reader = Reader(self._tree)
        limit = min(self._batch_rows, first_rows or self._batch_rows)
        try:
            while (rows := self._read(reader, limit)) is not None:
                yield _batch(rows)
                limit = self._batch_rows
        finally:
            reader.close()
        if skipped := self._tree.take_skipped():
            log.warning("names_not_utf8_skipped", root=self._root, skipped=skipped)

    def _read(self, reader: Reader, limit: int) -> Rows | None:
        try:
            return reader.read(limit)
        except OSError as exc:
            place = f"{self._prefix}{exc.filename}" if exc.filename else f"file://{self._root}"
            raise translated(exc, place) from exc


def _batch(rows: Rows) -> pa.RecordBatch:
    """The same memory as Arrow arrays, which keep `rows` alive."""
    offsets, text, sizes, times = (pa.foreign_buffer(address, size, rows) for address, size in rows.buffers)
    modified_at = LISTING_SCHEMA.field("modified_at").type
    return pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.string(), rows.count, [None, offsets, text], null_count=0),
            pa.Array.from_buffers(pa.int64(), rows.count, [None, sizes], null_count=0),
            pa.Array.from_buffers(modified_at, rows.count, [None, times], null_count=0),
            pa.nulls(rows.count, pa.string()),
        ],
        schema=LISTING_SCHEMA,
    )


def directories(root: str, below: str = "") -> list[str]:
    """The names of the directories directly inside a directory below a root, in order. Names that are not UTF-8 are
    left out, as in a walk."""
    try:
        try:
            handle = open_directory(os.fsencode(root), os.fsencode(below))
        except OSError as exc:
            if exc.errno not in _GONE:
                raise
            return []
        try:
            with os.scandir(handle) as entries:
                found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        finally:
            os.close(handle)
    except OSError as exc:
        raise translated(exc, f"file://{root}/{below}" if below else f"file://{root}") from exc
    return sorted(name for name in found if _is_text(name))


def irregular(root: str) -> list[str]:
    """Addresses of what a walk leaves out: anything below the root that is neither a regular file nor a directory."""
    found: list[str] = []
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        found.append(f"file://{entry.path}")
        except OSError as exc:
            if exc.errno not in _GONE:
                raise translated(exc, f"file://{directory}") from exc
    return sorted(found)


def modified_at(status: os.stat_result, age_by: AgeBy) -> datetime:
    """The time that counts as the age of a file or directory, as in `_walk`."""
    return _EPOCH + timedelta(milliseconds=age_ms(status, age_by is AgeBy.CHANGE))


def translated(exc: OSError, address: str) -> StorageError:
    if isinstance(exc, PermissionError):
        return Denied(address, f"{exc.strerror}: the user that runs this service needs access to it")
    return Unavailable(address, exc.strerror or str(exc))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def empty_directories(root: str, older_than: datetime, age_by: AgeBy) -> list[str]:
    """Directories below `root` without a file at any depth that were not changed since. Links are never followed, and a
    directory that cannot be read does not count as empty."""
    found: list[str] = []
    _collect(root, older_than, age_by, found, top=True)
    return found


def _collect(path: str, older_than: datetime, age_by: AgeBy, found: list[str], *, top: bool) -> bool:
    """Is this directory empty and old? If so, it is added to `found` after everything below it."""
    empty = True
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                inner = entry.is_dir(follow_symlinks=False)
                if not inner or not _collect(entry.path, older_than, age_by, found, top=False):
                    empty = False
        old = modified_at(Path(path).lstat(), age_by) < older_than
    except OSError:
        return False
    if empty and old and not top:
        found.append(path)
    return empty and old


def divided(root: Location, wanted: int) -> list[Part]:
    """Divide a tree into about this many parts that other processes list: directories with everything below them, from
    as many levels as needed, and the files directly in the levels above."""
    top = _top(root)
    done: list[Part] = []
    level = [top]
    for _ in range(_DEEPEST):
        if not level or len(done) + len(level) >= wanted:
            break
        above, level = level, []
        for path in above:
            inner = directories(top, _below(top, path))
            if len(done) + len(level) + len(inner) > _MOST_PER_WANTED * wanted:
                inner = []
            done.append(Part(root=root, prefix=path, flat=bool(inner)))
            level += [f"{path.rstrip('/')}/{name}" for name in inner]
    return done + [Part(root=root, prefix=path) for path in level]


def walk_of(part: Part, age_by: AgeBy) -> Walk:
    """One directory, with or without what is below it. Only the root itself may be a link."""
    top = _top(part.root)
    return Walk(top, _below(top, part.prefix), deep=not part.flat, age_by=age_by)


def _top(root: Location) -> str:
    return root.path.rstrip("/") or "/"


def _below(top: str, path: str) -> str:
    return path.removeprefix(top).removeprefix("/")
