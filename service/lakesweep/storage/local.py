"""Local disks: reading and writing. Deleting is in `local_delete`, apart on purpose.

Addresses are `file:///abs/path`, raw. Ages are judged by this machine's clock, which is also what stamps files
on a local file system; on a network file system the two may differ, and future times always keep a file.
"""

from __future__ import annotations

import asyncio
import os
import stat
import uuid
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import aiofiles
import pyarrow as pa

from lakesweep.cleanup.ports import Part
from lakesweep.model.errors import AlreadyThere, NotFound
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.storage.local_parts import divided
from lakesweep.storage.local_walk import Walk, directories, translated

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""A directory is no object: asking for one as a file finds nothing, as on an object store."""


class LocalStorage:
    """Reads files. Has no way to delete or overwrite one."""

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """All regular files below `root`, walked by one thread that is at most one batch ahead of the consumer."""
        return _walked(Walk(root.path.rstrip("/") or "/"))

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Directories, from as many levels as give enough of them."""
        return await asyncio.to_thread(divided, root, wanted)

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """One directory, with or without what is below it. Only the root itself may be a link."""
        at_root = part.prefix == (part.root.path.rstrip("/") or "/")
        return _walked(Walk(part.prefix, follow=at_root, deep=not part.flat))

    async def directories(self, root: Location) -> Sequence[str]:
        """Directories right below `root`; links are not followed."""
        return await asyncio.to_thread(directories, root.path.rstrip("/") or "/")

    async def read(self, location: Location) -> bytes:
        """The whole file."""
        try:
            async with aiofiles.open(location.path, "rb") as file:
                return await file.read()
        except _ABSENT as exc:
            raise NotFound(location.raw, "no such file") from exc
        except OSError as exc:
            raise translated(exc, location.raw) from exc

    async def stat(self, location: Location) -> StoredObject:
        """Size and time; a file has no etag."""
        try:
            found = await asyncio.to_thread(os.stat, location.path)
        except _ABSENT as exc:
            raise NotFound(location.raw, "no such file") from exc
        except OSError as exc:
            raise translated(exc, location.raw) from exc
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(location.raw, "not a regular file")
        return StoredObject(
            location=location,
            size_bytes=found.st_size,
            modified_at=datetime.fromtimestamp(found.st_mtime, UTC),
        )

    async def now(self) -> datetime:
        """This machine's clock."""
        return datetime.now(UTC)

    async def aclose(self) -> None:
        """Nothing is held between calls."""


async def _walked(walk: Walk) -> AsyncGenerator[pa.RecordBatch, None]:
    batches = walk.batches()
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="walk")
    ahead = loop.run_in_executor(thread, next, batches, None)
    try:
        while (batch := await ahead) is not None:
            ahead = loop.run_in_executor(thread, next, batches, None)
            yield batch
    finally:
        walk.stop()
        ahead.add_done_callback(_ignore)
        try:
            # Closing goes through the same thread, behind the batch that may still be in the making.
            await loop.run_in_executor(thread, batches.close)
        finally:
            thread.shutdown(wait=False)


def _ignore(ahead: asyncio.Future[pa.RecordBatch | None]) -> None:
    """Look at the outcome that a consumer who left early did not wait for, so that nobody reports it as lost."""
    if not ahead.cancelled():
        ahead.exception()


class LocalWriter:
    """Writes whole files: complete beside their place first, then moved into it."""

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write atomically. A create-only write goes in by hard link, which fails if the name is taken."""
        try:
            await asyncio.to_thread(_write, location, data, create_only=create_only)
        except OSError as exc:
            raise translated(exc, location.raw) from exc

    async def aclose(self) -> None:
        """Nothing is held between calls."""


def _write(location: Location, data: bytes, *, create_only: bool) -> None:
    target = Path(location.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A leading dot: if the process dies here, what is left is a hidden name that no table reads.
    beside = target.parent / f".{uuid.uuid4().hex}.writing"
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if create_only:
            _link(beside, target, location)
        else:
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    _sync_directory(target.parent)


def _link(beside: Path, target: Path, location: Location) -> None:
    try:
        os.link(beside, target)
    except FileExistsError as exc:
        raise AlreadyThere(location.raw, "the file exists") from exc


def _sync_directory(path: Path) -> None:
    """Make the new name itself survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
