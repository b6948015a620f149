"""Local disks: reading and writing. Deleting is in `local_delete`, apart on purpose.

Addresses are `file:///abs/path`, raw. A file is as old as its last change, which the kernel alone stamps: what `mv`,
`cp -p` or a restore brought in a moment ago has an old mtime. Ages are judged by this machine's clock, which is also
what stamps files on a local file system; on a network file system the two may differ, and future times always keep a
file.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import uuid
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from datetime import UTC, datetime

import aiofiles
import aiofiles.os
import pyarrow as pa

from lakesweep.model.errors import AlreadyThere, NotFound
from lakesweep.model.files import AgeBy, StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part
from lakesweep.storage.local.open_below import Reach
from lakesweep.storage.local.shards import divided, walk_of
from lakesweep.storage.local.walk import Walk, directories, irregular, modified_at, translated

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)
"""A directory is no object: asking for one as a file finds nothing, as on an object store. And no file can have a name
with a NUL, which is what a ValueError says."""

_MOST_THREADS = min(4, os.cpu_count() or 1)
"""Of one listing. Each is busy with the kernel nearly all the time, so more than there are cores are of no use."""
_LEAVE_SECONDS = 10.0
"""How long a listing that is left waits for its threads. One that the disk keeps longer is left behind."""
_AHEAD_PER_THREAD = 2
"""Batches that may lie ready: enough to go on while the consumer is busy, few enough to bound the memory."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_read_bytes = aiofiles.os.wrap(Reach.read)
"""Opened, read and closed in one visit to a thread: manifests are small and many, and going there costs the most."""


class LocalStorage:
    """Reads files. Has no way to delete or overwrite one."""

    def __init__(self, age_by: AgeBy = AgeBy.CHANGE, places: Sequence[Location] = ()) -> None:
        """With places, only what is reached below them without a link; see `local_reach`."""
        self._age_by = age_by
        self._reach = Reach(places)

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """All regular files below `root`, walked by a few threads that are a few batches ahead of the consumer."""
        top, below = await asyncio.to_thread(self._reach.top_and_below, root)
        async with aclosing(_walked(Walk(top, below, age_by=self._age_by))) as batches:
            async for batch in batches:
                yield batch

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Directories, from as many levels as give enough of them."""
        await asyncio.to_thread(self._reach.top_and_below, root)
        return await asyncio.to_thread(divided, root, wanted)

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """One directory, with or without what is below it. Only the root itself may be a link."""
        await asyncio.to_thread(self._reach.top_and_below, part.root)
        async with aclosing(_walked(walk_of(part, self._age_by))) as batches:
            async for batch in batches:
                yield batch

    async def directories(self, root: Location) -> Sequence[str]:
        """Directories right below `root`; links are not followed."""
        top, below = await asyncio.to_thread(self._reach.top_and_below, root)
        return await asyncio.to_thread(directories, top, below)

    async def irregular(self, root: Location) -> Sequence[str]:
        """Whatever is neither a regular file nor a directory. Only the root itself may be a link."""
        await asyncio.to_thread(self._reach.top_and_below, root)
        return await asyncio.to_thread(irregular, root.path.rstrip("/") or "/")

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole file."""
        try:
            return await _read_bytes(self._reach, location, limit)
        except _ABSENT as exc:
            raise NotFound(location.raw, "no such file") from exc
        except OSError as exc:
            raise translated(exc, location.raw) from exc

    async def stat(self, location: Location) -> StoredObject:
        """Size and time; a file has no etag."""
        try:
            found = await asyncio.to_thread(self._reach.stat, location)
        except _ABSENT as exc:
            raise NotFound(location.raw, "no such file") from exc
        except OSError as exc:
            raise translated(exc, location.raw) from exc
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(location.raw, "not a regular file")
        return StoredObject(
            location=location,
            size_bytes=found.st_size,
            modified_at=modified_at(found, self._age_by),
        )

    async def now(self) -> datetime:
        """This machine's clock."""
        return datetime.now(UTC)

    async def aclose(self) -> None:
        """Nothing is held between calls."""


async def _walked(walk: Walk) -> AsyncGenerator[pa.RecordBatch, None]:
    """One thread to begin with: most listings are of a few files. More join as long as directories wait for one.

    Threads go on reading whatever the loop is busy with, until they are as far ahead as they may be.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[pa.RecordBatch | asyncio.Future[None]] = asyncio.Queue()
    room = threading.Semaphore(_MOST_THREADS * _AHEAD_PER_THREAD)
    threads = ThreadPoolExecutor(max_workers=_MOST_THREADS, thread_name_prefix="walk")

    def read() -> None:
        for batch in walk.batches():
            room.acquire()
            loop.call_soon_threadsafe(ready.put_nowait, batch)

    def start() -> asyncio.Future[None]:
        reading = loop.run_in_executor(threads, read)
        reading.add_done_callback(_look_at)
        reading.add_done_callback(ready.put_nowait)
        return reading

    started = [start()]
    ended = 0
    try:
        while ended < len(started):
            item = await ready.get()
            if isinstance(item, asyncio.Future):
                item.result()
                ended += 1
                continue
            room.release()
            if len(started) < _MOST_THREADS and walk.has_more:
                started.append(start())
            yield item
    finally:
        walk.stop()
        room.release(_MOST_THREADS)  # whoever waits for room shall see that the walk is over
        threads.shutdown(wait=False)
        _, hanging = await asyncio.wait(started, timeout=_LEAVE_SECONDS)
        for reading in hanging:  # a disk that does not answer: whoever comes back last closes the walk
            reading.add_done_callback(lambda _: walk.close() if all(one.done() for one in started) else None)
        if not hanging:
            walk.close()


def _look_at(reading: asyncio.Future[None]) -> None:
    """Nobody shall report an outcome as lost that a consumer who left early did not wait for."""
    if not reading.cancelled():
        reading.exception()


class LocalWriter:
    """Writes whole files: complete beside their place first, then moved into it."""

    def __init__(self, places: Sequence[Location] = ()) -> None:
        """With places, only below them and through no link."""
        self._reach = Reach(places)

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write atomically. A create-only write goes in by hard link, which fails if the name is taken."""
        try:
            await asyncio.to_thread(self._write, location, data, create_only=create_only)
        except OSError as exc:
            raise translated(exc, location.raw) from exc

    async def aclose(self) -> None:
        """Nothing is held between calls."""

    def _write(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """All in one directory that stays open: if a link takes its place meanwhile, nothing is written there."""
        with self._reach.new_parent(location) as (directory, name):
            # A leading dot: if the process dies here, what is left is a hidden name that no table reads.
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
            os.fsync(directory)  # so that the new name itself survives a power cut


def _link(directory: int, beside: str, name: str, location: Location) -> None:
    try:
        os.link(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError as exc:
        raise AlreadyThere(location.raw, "the file exists") from exc
