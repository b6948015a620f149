"""A synthetic table on disk, pages of its listing and its manifests, so that other processes can read it, too.

Spark's workers have the product, not its benchmarks: this module travels to them by value and imports nothing of
`tests`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from lakesweep.model.errors import NotFound
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import Part


class StoredTable:
    """Read-only storage over a directory with `pages/*.arrow` and `manifests/<name>`."""

    def __init__(self, directory: Path, now: datetime) -> None:
        self._directory = directory
        self._now = now

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """Every page, whichever root is asked for: there is one."""
        (whole,) = await self.parts(root, 1)
        async with aclosing(self.list_part(whole)) as batches:
            async for batch in batches:
                yield batch

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Runs of pages, by their names."""
        pages = self._pages()
        size = -(-len(pages) // wanted)
        starts = pages[::size]
        ends = [(start.name,) for start in starts[1:]]
        return [Part(root=root, prefix=start.name, until=end) for start, end in zip(starts, [*ends, ()], strict=True)]

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """The pages of one run."""
        for page in self._pages():
            if part.prefix <= page.name and not (part.until and page.name >= part.until[0]):
                for batch in await asyncio.to_thread(_batches, page):
                    yield batch

    async def directories(self, root: Location) -> Sequence[str]:
        """None that anybody asks for."""
        return ()

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        """None that anybody asks for."""
        return ()

    async def irregular(self, root: Location) -> Sequence[str]:
        """None."""
        return ()

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """A manifest."""
        return await asyncio.to_thread((self._directory / "manifests" / location.name).read_bytes)

    async def stat(self, location: Location) -> StoredObject:
        """Nothing is there that was not listed."""
        raise NotFound(location.raw, "synthetic")

    async def now(self) -> datetime:
        """The time at which the table was made up."""
        return self._now

    async def aclose(self) -> None:
        """Nothing is open."""

    def _pages(self) -> list[Path]:
        return sorted((self._directory / "pages").iterdir())


def _batches(page: Path) -> list[pa.RecordBatch]:
    with ipc.open_stream(page.read_bytes()) as stream:
        return list(stream)
