"""What is stored, in shards: each a small picklable value that any process turns into rows of a listing.

Without an inventory the shards are the roots, or parts of them where many machines list; with one they are its data
files; a table that is not to be listed as a whole says itself what to look at. An engine only decides where the
shards are read. Every shard is complete or raises.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep import aio
from lakesweep.engines.inventory import lists, rows
from lakesweep.engines.inventory.lists import DataFile, FileList
from lakesweep.model.errors import NotFound, Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.engine import Inventory, OrphanJob
from lakesweep.ports.storage import LISTING_SCHEMA, Part, Storage
from lakesweep.ports.table import Shortlist

_ROOTS_AT_ONCE = 16
_PARTS_PER_SHARD = 2
_OBJECTS_PER_SHARD = 10_000
_ASKED_AT_ONCE = 64
_FILES_AT_ONCE = 2
"""A data file is held in memory while it is read."""

log = structlog.get_logger(__name__)


class Shard(Protocol):
    """A part of what is stored. Picklable; no two of a table's shards have an object in common."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """All of it, as LISTING_SCHEMA."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RootShard:
    """Everything below one root, asked of storage now."""

    root: Location

    @property
    def name(self) -> str:
        """The root."""
        return self.root.raw

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """List it."""
        async with aclosing(storage.list(self.root)) as pages:
            async for page in pages:
                yield page


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsShard:
    """Parts of roots, as their stores divided them."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """How many there are, and the first of them."""
        return f"{len(self.parts)} parts from {self.parts[0].prefix} on"

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """List one after the other; a store lists even one of them by many requests at once."""
        for part in self.parts:
            async with aclosing(storage.list_part(part)) as pages:
                async for page in pages:
                    yield page


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedShard:
    """Single objects, each asked for by its address; those that are absent are left out."""

    paths: tuple[str, ...]

    @property
    def name(self) -> str:
        """How many there are, and the first of them."""
        return f"{len(self.paths)} objects from {self.paths[0]} on"

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """Look at them."""
        for start in range(0, len(self.paths), _ASKED_AT_ONCE):
            chunk = self.paths[start : start + _ASKED_AT_ONCE]
            answers = await aio.together(_row(storage, path) for path in chunk)
            if found := [answer for answer in answers if answer is not None]:
                yield pa.RecordBatch.from_pylist(found, schema=LISTING_SCHEMA)


async def _row(storage: Storage, path: str) -> dict[str, object] | None:
    try:
        stored = await storage.stat(Location.parse(path))
    except NotFound:
        return None
    return {"path": path, "size_bytes": stored.size_bytes, "modified_at": stored.modified_at, "etag": stored.etag}


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryShard:
    """One data file of an inventory."""

    source: FileList
    """Without its files: they would travel with every shard."""
    file: DataFile
    roots: tuple[Location, ...]
    without: tuple[str, ...] = ()
    """Objects that another shard asks for."""

    @property
    def name(self) -> str:
        """The data file."""
        return self.file.location.raw

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """Fetch and decode it. Decoding runs in a thread."""
        try:
            data = await storage.read(self.file.location, self.file.size_bytes)
        except NotFound as exc:
            raise Unreadable(self.file.location.raw, "the inventory names it and it is not there") from exc
        batches = rows.read(self.source, self.file, data, self.roots)
        without = pa.array(self.without, pa.string())
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            batch = batch.filter(pc.invert(pc.is_in(batch.column("path"), value_set=without)))
            if batch.num_rows:
                yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """How a table's listing is divided."""

    shards: tuple[Shard, ...]
    at_once: int
    """Shards that one process should read side by side."""
    inventory: str | None = None
    """The ready list that the shards are of."""
    asked: int = 0
    """Objects that are asked for beside it."""
    divided: bool = False
    """Roots were divided into parts, which a store may yet turn out not to allow."""

    def check_rows(self, count: int) -> None:
        """An inventory without a single object of the table is of another place: an empty plan would hide that."""
        if self.inventory is not None and count <= self.asked:
            raise Refused(
                "inventory_elsewhere",
                f"{self.inventory} lists no object of this table: it covers another location or is older than it",
            )


def of_roots(job: OrphanJob) -> Listing:
    """Storage itself, whatever inventory there is."""
    return Listing(shards=tuple(RootShard(root=root) for root in job.roots), at_once=_ROOTS_AT_ONCE)


async def of_parts(job: OrphanJob, storage: Storage, wanted: int) -> Listing:
    """Storage itself, in about so many shards of about as many parts. Nobody knows how large a part is: several make
    shards more alike, and neighbours, which are often alike, go to different ones."""
    each = math.ceil(wanted * _PARTS_PER_SHARD / len(job.roots))
    parts = [part for root in job.roots for part in await storage.parts(root, each)]
    count = min(len(parts), wanted)
    shards = tuple(PartsShard(parts=tuple(parts[number::count])) for number in range(count))
    return Listing(shards=shards, at_once=_ROOTS_AT_ONCE, divided=True)


def _of_shortlist(shortlist: Shortlist) -> Listing:
    roots = (RootShard(root=root) for root in shortlist.roots)
    return Listing(shards=(*roots, *_named(shortlist.objects)), at_once=_ROOTS_AT_ONCE)


def _named(objects: tuple[str, ...]) -> Iterator[NamedShard]:
    for start in range(0, len(objects), _OBJECTS_PER_SHARD):
        yield NamedShard(paths=objects[start : start + _OBJECTS_PER_SHARD])


async def planned(job: OrphanJob, storage: Storage, wanted: int = 1) -> Listing:
    """What the job asks for: its shortlist or its inventory if it has one, else its roots, in `wanted` shards if
    that is more than one."""
    if job.shortlist is not None:
        return _of_shortlist(job.shortlist)
    if job.inventory is not None:
        return await _of_inventory(job, job.inventory, storage)
    return of_roots(job) if wanted == 1 else await of_parts(job, storage, wanted)


async def _of_inventory(job: OrphanJob, inventory: Inventory, storage: Storage) -> Listing:
    found = await lists.find(storage, inventory, job.roots)
    log.info("inventory_taken", address=found.address, created_at=found.created_at, data_files=len(found.files))
    source, asked = lists.without_files(found), job.history
    files = (InventoryShard(source=source, file=file, roots=job.roots, without=asked) for file in found.files)
    listing = Listing(
        shards=(*files, *_named(asked)), at_once=_FILES_AT_ONCE, inventory=found.address, asked=len(asked)
    )
    if not found.files:
        listing.check_rows(0)
    return listing
