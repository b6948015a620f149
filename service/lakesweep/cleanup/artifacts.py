"""Where plans and ledgers are kept: files in a directory, or copies of them in an object store that replicas share.

A file is published complete, under a name that is never used again, before its address goes into the state store. An
object store gets it in parts of bounded size, so that no plan has to fit in memory. Reads and writes only its own
place.
"""

from __future__ import annotations

import asyncio
import io
import mmap
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from lakesweep.cleanup import plan_file
from lakesweep.model.errors import Unreadable
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage, Writer

PART_BYTES = 16 * 1024**2
LEFTOVER_AGE = timedelta(days=1)
"""No cycle takes so long: an unfinished file of this age is a killed process's."""

Discard = Callable[[Sequence[str]], Awaitable[None]]
"""Removes objects of this place. Never raises: what is left costs space and nothing else."""
KEPT_PARTS = 8
"""Of all published files together: at sixteen megabytes a part some hundred megabytes of disk."""

Answer = TypeVar("Answer")
_Part = bytes | mmap.mmap


class Artifacts:
    """`working` is a directory of this machine; `shared` is where copies go, None when that directory is all."""

    def __init__(
        self,
        working: Path,
        *,
        shared: Location | None = None,
        storage: Storage | None = None,
        writer: Writer | None = None,
        discard: Discard | None = None,
    ) -> None:
        self._working = working
        self._shared = shared
        self._storage = storage
        self._writer = writer
        self._discard = discard
        self._parted = Parted(storage, working / "fetched") if storage is not None else None

    @property
    def is_shared(self) -> bool:
        return self._shared is not None

    def file(self, kind: str, name: str) -> Path:
        """Where to write a file before it is published: `plans/…`, `ledgers/…`."""
        return self._working / kind / name

    async def publish(self, path: Path) -> str:
        """The address under which any replica finds the file."""
        if self._shared is None or self._writer is None:
            return str(path)
        size = (await asyncio.to_thread(path.stat)).st_size
        parts = max(1, -(-size // PART_BYTES))
        place = self._shared.join(*path.relative_to(self._working).parts, str(parts))
        with path.open("rb") as file:
            for part in range(parts):
                data = await asyncio.to_thread(file.read, PART_BYTES)
                await self._writer.put(place.join(str(part)), data, create_only=False)
        return place.raw

    async def discard(self, address: str) -> None:
        """Remove a published file that nothing points to any more."""
        if "://" not in address:
            path = Path(address)
            if path.is_relative_to(self._working):
                with suppress(OSError):
                    await asyncio.to_thread(path.unlink, missing_ok=True)
        elif self._discard is not None and self._shared is not None:
            place = Location.parse(address)
            if self._shared.contains(place) and place.name.isdecimal():
                await self._discard([place.join(str(part)).raw for part in range(int(place.name))])

    def remove_leftovers(self, now: datetime) -> int:
        """Unfinished files of processes that were killed, and local copies of what is published elsewhere."""
        patterns = ["fetched/*", "*/*.observed", "*/*.partial"]
        if self._shared is not None:
            patterns += ["plans/*.parquet", "ledgers/*.parquet"]
        removed = 0
        for path in (found for pattern in patterns for found in self._working.glob(pattern)):
            with suppress(OSError):
                if path.stat().st_mtime < (now - LEFTOVER_AGE).timestamp():
                    path.unlink()
                    removed += 1
        return removed

    @asynccontextmanager
    async def opened(self, address: str) -> AsyncIterator[str]:
        """A local file with the content of a published one. Raises NotFound or OSError when it is gone."""
        if self._shared is None or self._storage is None or "://" not in address:
            yield address
            return
        copy = self._working / "fetched" / f"{uuid.uuid4().hex}.parquet"
        try:
            await self._fetch(Location.parse(address), copy)
            yield str(copy)
        finally:
            copy.unlink(missing_ok=True)

    async def page(self, address: str, offset: int, limit: int) -> list[Candidate]:
        """Some rows of a published plan, to be shown. Of a shared one only the parts that hold them are read, and kept
        for the next page. Raises NotFound, OSError or Unreadable when it is gone."""

        def rows(file: plan_file.PlanSource) -> list[Candidate]:
            return plan_file.read_page(file, offset, limit)

        if self._shared is None or self._parted is None or "://" not in address:
            return await asyncio.to_thread(rows, address)
        return await self._parted.query(Location.parse(address), rows)

    async def _fetch(self, place: Location, copy: Path) -> None:
        if self._storage is None:
            raise FileNotFoundError(place.raw)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("wb") as file:
            for part in range(int(place.name)):
                data = await self._storage.read(place.join(str(part)))
                await asyncio.to_thread(file.write, data)


class Parted:
    """Reads published files by their parts: only those that are requested, and each from the store once.

    Parts that were read stay on this machine's disk for the next question, a bounded number of them, in files without a
    name: nobody else can change them, and they are gone with the process. For showing rows, never for deciding on them.
    """

    def __init__(self, storage: Storage, directory: Path) -> None:
        self._storage = storage
        self._directory = directory
        self._kept: OrderedDict[str, _Part] = OrderedDict()
        self._one_fetch = asyncio.Lock()
        """Many requests for one plan come at once; one of them fetches what all of them need."""

    async def query(self, place: Location, read: Callable[[PartedFile], Answer]) -> Answer:
        """The result of `read` for the file, in a thread. It is called again if it lacked a part, so it must start
        over each time. Raises NotFound and OSError like the store, Unreadable if parts are missing."""
        file = PartedFile(int(place.name))
        await self._fetch_part(place, file, 0)
        for _ in range(file.parts + 1):
            await self._fetch_part(place, file, file.lacks)
            file.seek(0)
            try:
                return await asyncio.to_thread(read, file)
            except (Unreadable, OSError):
                if file.lacks is None:
                    raise
        raise Unreadable(place.raw, "its parts are inconsistent")

    async def _fetch_part(self, place: Location, file: PartedFile, number: int | None) -> None:
        if number is None:
            return
        address = place.join(str(number))
        async with self._one_fetch:
            part = self._kept.pop(address.raw, None)
            if part is None:
                part = await asyncio.to_thread(_on_disk, self._directory, await self._storage.read(address))
            self._kept[address.raw] = part
            if len(self._kept) > KEPT_PARTS:
                self._kept.popitem(last=False)  # its reader still has it
        file.add(number, part)


class PartedFile(io.RawIOBase):
    """A file of parts that are all as long as the first, except the last. `lacks` is the part that a read ended at."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.lacks: int | None = parts - 1  # without it nobody knows where the file ends
        self._here: dict[int, _Part] = {}
        self._position = 0

    def add(self, number: int, part: _Part) -> None:
        self._here[number] = part
        if self.lacks == number:
            self.lacks = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        self._position = begins[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """So many bytes, over the borders of parts, or all up to the end. Raises OSError at a part that is not here."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        pieces = []
        while self._position < end:
            number, start = divmod(self._position, len(self._here[0]))
            if number not in self._here:
                self.lacks = number
                raise OSError(f"part {number} has not arrived yet")
            pieces.append(self._here[number][start : start + end - self._position])
            self._position += len(pieces[-1])
            if not pieces[-1]:
                raise OSError(f"part {number} is shorter than the first one")
        return b"".join(pieces)

    @property
    def _size(self) -> int:
        return (self.parts - 1) * len(self._here[0]) + len(self._here[self.parts - 1])


def _on_disk(directory: Path, data: bytes) -> _Part:
    if not data:
        return data
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(data)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
