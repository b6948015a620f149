"""Read a published file by its parts: only those that are requested, and each from the store once.

Parts that were read stay on this machine's disk for the next question, a bounded number of them, in files without a
name: nobody else can change them, and they are gone with the process. For showing rows, never for deciding on them.
"""

from __future__ import annotations

import asyncio
import io
import mmap
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage

KEPT_PARTS = 8
"""Of all published files together: at sixteen megabytes a part some hundred megabytes of disk."""

Answer = TypeVar("Answer")
_Part = bytes | mmap.mmap


class Parted:
    """Published files of one place."""

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
        await self._bring(place, file, 0)
        for _ in range(file.parts + 1):
            await self._bring(place, file, file.lacks)
            file.seek(0)
            try:
                return await asyncio.to_thread(read, file)
            except (Unreadable, OSError):
                if file.lacks is None:
                    raise
        raise Unreadable(place.raw, "its parts are inconsistent")

    async def _bring(self, place: Location, file: PartedFile, number: int | None) -> None:
        if number is None:
            return
        address = place.join(str(number))
        async with self._one_fetch:
            part = self._kept.pop(address.raw, None)
            if part is None:
                part = await asyncio.to_thread(_on_disk, self._directory, await self._storage.read(address))
            self._kept[address.raw] = part
            if len(self._kept) > KEPT_PARTS:
                self._kept.popitem(last=False)  # whoever reads it still has it
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
        """Anywhere, from the beginning, from here or from the end."""
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
