"""Local disks: reading and writing. Deleting is in `deleter`, separate on purpose.

Addresses are `file:///abs/path`, raw. The age of a file counts from its last change (ctime), which only the kernel
sets: a file that `mv`, `cp -p` or a restore has just created has an old mtime. Ages are judged by this machine's clock,
which is also what stamps files on a local file system; on a network file system the two may differ, and future times
always keep a file."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

import aiofiles
import aiofiles.os
import pyarrow as pa

from lakesweep.model.errors import AlreadyThere, NotFound
from lakesweep.model.files import AgeBy, StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part
from lakesweep.storage.local.open_below import Reach
from lakesweep.storage.local.walk import Walk, directories, divided, irregular, modified_at, translated, walk_of
from lakesweep.storage.spec import NothingToClose
from lakesweep.telemetry import requests

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)
"""A directory is not an object: reading one as a file finds nothing, as on an object store. ValueError: a name with a
NUL, which no file has."""

_MOST_THREADS = min(4, os.cpu_count() or 1)
"""Threads of one listing. Each is busy in the kernel nearly all the time, so more than the number of cores do not
help."""
_LEAVE_SECONDS = 10.0
"""How long an abandoned listing waits for its threads. A thread that the disk blocks for longer is left behind."""
_AHEAD_PER_THREAD = 2
"""Batches that may be queued: enough to continue while the consumer is busy, few enough to bound memory."""

_FIRST_ROWS = 1024
"""What a listing reads before it starts its own threads. Starting one costs more than reading a small directory."""

Batches = Generator[pa.RecordBatch, None, None]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_read_bytes = aiofiles.os.wrap(Reach.read)
"""Opened, read and closed in one thread call: manifests are small and many, and the call costs the most."""


class LocalStorage(NothingToClose):
    """Reads files. Has no way to delete or overwrite one."""

    def __init__(self, age_by: AgeBy = AgeBy.CHANGE, places: Sequence[Location] = (), *, counted: bool = True) -> None:
        """With places, only what is below them without a link; see `local.open_below`."""
        self._age_by = age_by
        self._sent = requests.sent if counted else requests.not_sent
        self._reach = Reach(places)

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """All regular files below `root`, walked by a few threads that are a few batches ahead of the consumer."""
        return self._walked(Walk(*self._reach.way(root), age_by=self._age_by), root)

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        await asyncio.to_thread(self._reach.top_and_below, root)
        return await asyncio.to_thread(divided, root, wanted)

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        return self._walked(walk_of(part, self._age_by), part.root)

    def _walked(self, walk: Walk, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        self._sent("list")  # one for the whole walk: reading a directory costs nothing
        return _walked(walk, lambda: self._reach.top_and_below(root))

    async def directories(self, root: Location) -> Sequence[str]:
        self._sent("list")
        return await asyncio.to_thread(lambda: directories(*self._reach.top_and_below(root)))

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:  # noqa: ARG002  # the port's
        """All of them: looking into one costs as little as looking whether it is there."""
        return names

    async def irregular(self, root: Location) -> Sequence[str]:
        """Only the root itself may be a link."""
        await asyncio.to_thread(self._reach.top_and_below, root)
        return await asyncio.to_thread(irregular, root.path.rstrip("/") or "/")

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        self._sent("get")
        try:
            data = await _read_bytes(self._reach, location, limit)
        except _ABSENT as exc:
            raise NotFound(location.raw, "no such file") from exc
        except OSError as exc:
            raise translated(exc, location.raw) from exc
        self._sent("bytes_read", len(data))
        return data

    async def stat(self, location: Location) -> StoredObject:
        self._sent("head")
        return await asyncio.to_thread(self._stat, location)

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        """Both in one thread call, one right after the other."""
        self._sent("list")  # counted as on an object store
        return await asyncio.to_thread(lambda: (self._seen(one), self._seen(other)))

    def _seen(self, location: Location) -> StoredObject | None:
        try:
            return self._stat(location)
        except NotFound:
            return None

    def _stat(self, location: Location) -> StoredObject:
        try:
            found = self._reach.stat(location)
        except _ABSENT as exc:
            raise NotFound(location.raw, "no such file") from exc
        except OSError as exc:
            raise translated(exc, location.raw) from exc
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(location.raw, "not a regular file")
        return StoredObject(location=location, size_bytes=found.st_size, modified_at=modified_at(found, self._age_by))

    async def now(self) -> datetime:
        return datetime.now(UTC)


async def _walked(walk: Walk, check: Callable[[], object] = lambda: None) -> AsyncGenerator[pa.RecordBatch, None]:
    """Read the first rows in one call to a shared thread, after `check`: most listings have few files. If there are
    more, separate threads continue the walk."""
    begun = walk.batches(_FIRST_ROWS)
    started = [asyncio.get_running_loop().run_in_executor(None, _begin, check, begun)]
    started[0].add_done_callback(_look_at)
    try:
        await asyncio.wait(started)
        found, has_more = started[0].result()
        for batch in found:
            yield batch
        if has_more:
            async with aclosing(_read_on(walk, begun, started)) as batches:
                async for batch in batches:
                    yield batch
    finally:
        walk.stop()
        _, hanging = await asyncio.wait(started, timeout=_LEAVE_SECONDS)
        for reading in hanging:  # the disk does not answer: the last thread to return closes the walk
            reading.add_done_callback(lambda _: _close(walk, begun) if all(one.done() for one in started) else None)
        if not hanging:
            _close(walk, begun)


def _begin(check: Callable[[], object], begun: Batches) -> tuple[list[pa.RecordBatch], bool]:
    """The first batches of a walk, and whether there may be more."""
    check()
    found: list[pa.RecordBatch] = []
    for batch in begun:
        found.append(batch)
        if batch.num_rows == _FIRST_ROWS or len(found) > 1:
            return found, True
    return found, False


async def _read_on(
    walk: Walk, begun: Batches, started: list[asyncio.Future[Any]]
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The rest of a walk: one thread continues what was begun, and more join as long as directories are waiting. All
    are added to `started`. Threads keep reading while the event loop is busy, until the queue is full."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[pa.RecordBatch | asyncio.Future[None]] = asyncio.Queue()
    room = threading.Semaphore(_MOST_THREADS * _AHEAD_PER_THREAD)
    threads = ThreadPoolExecutor(max_workers=_MOST_THREADS, thread_name_prefix="walk")

    def read(batches: Batches) -> None:
        for batch in batches:
            room.acquire()
            loop.call_soon_threadsafe(ready.put_nowait, batch)

    def start(batches: Batches) -> None:
        reading = loop.run_in_executor(threads, read, batches)
        reading.add_done_callback(_look_at)
        reading.add_done_callback(ready.put_nowait)
        started.append(reading)

    start(begun)
    running = 1
    try:
        while running:
            item = await ready.get()
            if isinstance(item, asyncio.Future):
                item.result()
                running -= 1
                continue
            room.release()
            if running < _MOST_THREADS and walk.has_more:
                start(walk.batches())
                running += 1
            yield item
    finally:
        walk.stop()
        room.release(_MOST_THREADS)  # wake threads that wait for room in the queue
        threads.shutdown(wait=False)


def _close(walk: Walk, begun: Batches) -> None:
    begun.close()
    walk.close()


def _look_at(reading: asyncio.Future[Any]) -> None:
    """Retrieve results that an early consumer did not wait for, so that asyncio reports no lost exception."""
    if not reading.cancelled():
        reading.exception()


class LocalWriter(NothingToClose):
    """Writes whole files: first to a temporary file beside the target, then renamed."""

    def __init__(self, places: Sequence[Location] = (), *, counted: bool = True) -> None:
        """With places, only below them and through no link."""
        self._sent = requests.sent if counted else requests.not_sent
        self._reach = Reach(places)

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write atomically. A create-only write uses a hard link, which fails if the name is taken."""
        self._sent("put")
        try:
            await asyncio.to_thread(self._write, location, data, create_only=create_only)
        except OSError as exc:
            raise translated(exc, location.raw) from exc

    def _write(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """All within one open directory: if a link replaces it meanwhile, nothing is written through the link."""
        with self._reach.new_parent(location) as (directory, name):
            # A leading dot: if the process dies here, a hidden file is left that no table reads.
            beside = f".{uuid.uuid4().hex}.writing"
            try:
                with os.fdopen(os.open(beside, _NEW, 0o666, dir_fd=directory), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if create_only:
                    _link(directory, beside, name, location)
                else:
                    os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(beside, dir_fd=directory)
            os.fsync(directory)  # so that the new name survives a power failure


def _link(directory: int, beside: str, name: str, location: Location) -> None:
    try:
        os.link(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError as exc:
        raise AlreadyThere(location.raw, "the file exists") from exc
