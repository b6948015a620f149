"""Iceberg metadata in the directory of a former table, whatever its format was: all of it, not only the newest. A view
may have been created there since, under the same name, and catalogs do not list views among tables."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from lakesweep.aio import gather_bounded
from lakesweep.formats import markers
from lakesweep.formats.iceberg import lineage
from lakesweep.model.errors import NotFound, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.storage import Storage

_AT_ONCE = 8
MOST_FILES = 10_000
"""A table that never cleans up its metadata has some thousands. Each is read."""


@dataclass(frozen=True, slots=True)
class IcebergMetadata:
    """What the files say."""

    uuids: frozenset[str] = frozenset()
    view: Location | None = None
    """The metadata of a view, if there is one."""


async def read(storage: Storage, place: Location) -> IcebergMetadata:
    """What cannot be parsed is ignored; a store that does not answer raises, and so do too many files."""
    directory = place.join(markers.ICEBERG_METADATA).as_directory()
    files: list[Location] = []
    async with aclosing(storage.list(directory)) as pages:
        async for page in pages:
            paths = page.column("path").to_pylist()
            files += [Location.parse(path) for path in paths if path.endswith(markers.ICEBERG_SUFFIXES)]
            if len(files) > MOST_FILES:
                raise Unreadable(directory.raw, f"it has more than {MOST_FILES} metadata files")

    async def one(file: Location) -> lineage.Identity | None:
        try:
            return await asyncio.to_thread(lineage.read_identity, file.raw, await storage.read(file))
        except (NotFound, Unreadable):
            return None

    found = await gather_bounded(files, one, limit=_AT_ONCE)
    views = [file for file, known in zip(files, found, strict=True) if known and known.is_view]
    return IcebergMetadata(frozenset(one.uuid for one in found if one and one.uuid), next(iter(views), None))
