"""What is stored, in shards: each a small picklable value that any process turns into rows of a listing.

Without an inventory the shards are the roots, or parts of them where many machines list. With one they are its data
files. A table that must not be listed completely names the objects to look at instead. An engine only decides where the
shards are read. Every shard is complete or raises.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep import aio
from lakesweep.engines.inventory import lists, rows
from lakesweep.engines.inventory.lists import DataFile, FileList
from lakesweep.model.errors import NotFound, Refused, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.engine import Everything, Inventory, OrphanJob
from lakesweep.ports.storage import LISTING_SCHEMA, Part, Storage, stat_or_none
from lakesweep.ports.table import Shortlist

_ROOTS_AT_ONCE = 16
_PARTS_PER_SHARD = 2
_OBJECTS_PER_SHARD = 10_000
_ASKED_AT_ONCE = 64
_FILES_AT_ONCE = 2
"""Data files read at once; each is in memory while it is read."""

log = structlog.get_logger(__name__)


class Shard(Protocol):
    """A part of what is stored. Picklable. No two shards of a table share an object."""

    def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """All rows, as LISTING_SCHEMA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootShard:
    """Everything below one root, listed from storage."""

    root: Location

    def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        return storage.list(self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsShard:
    """Parts of roots, as their stores divided them."""

    parts: tuple[Part, ...]

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        """List one part after the other; a store lists each with many concurrent requests."""
        for part in self.parts:
            async with aclosing(storage.list_part(part)) as pages:
                async for page in pages:
                    yield page


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedShard:
    """Single objects, each requested by its address. Absent ones are left out."""

    paths: tuple[str, ...]

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        for start in range(0, len(self.paths), _ASKED_AT_ONCE):
            chunk = self.paths[start : start + _ASKED_AT_ONCE]
            stored = await aio.together(stat_or_none(storage, Location.parse(path)) for path in chunk)
            found = [
                {"path": path, "size_bytes": one.size_bytes, "modified_at": one.modified_at, "etag": one.etag}
                for path, one in zip(chunk, stored, strict=True)
                if one is not None
            ]
            if found:
                yield pa.RecordBatch.from_pylist(found, schema=LISTING_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedShard:
    """Single objects as metadata records them, by address and size. Nothing is requested from storage."""

    objects: tuple[tuple[str, int], ...]

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:  # noqa: ARG002  # the protocol's
        """Rows of unknown age: only what an expiring snapshot names may be deleted this way."""
        found = [{"path": path, "size_bytes": size, "modified_at": None, "etag": None} for path, size in self.objects]
        yield pa.RecordBatch.from_pylist(found, schema=LISTING_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryShard:
    """One data file of an inventory."""

    source: FileList
    """Without its files, which would be sent along with every shard."""
    file: DataFile
    roots: tuple[Location, ...]
    without: tuple[str, ...] = ()
    """Objects that another shard requests singly."""

    async def rows(self, storage: Storage) -> AsyncGenerator[pa.RecordBatch, None]:
        try:
            data = await storage.read(self.file.location, self.file.size_bytes)
        except NotFound as exc:
            raise Unreadable(self.file.location.raw, "the inventory names it, but it does not exist") from exc
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
    """Shards that one process should read concurrently."""
    inventory: str | None = None
    """The inventory that the shards come from."""
    as_of: datetime | None = None
    """When that inventory was made; None if storage is listed now."""
    asked: int = 0
    """Objects requested singly in addition to it."""
    divided: bool = False
    """Whether roots were divided into parts. A store may still turn out not to support that."""

    def check_rows(self, count: int) -> None:
        """An inventory without a single object of the table covers another place. An empty plan would hide that."""
        if self.inventory is not None and count <= self.asked:
            raise Refused(
                RefusalCode.INVENTORY_ELSEWHERE,
                f"{self.inventory} lists no object of this table: it covers another location or is older than it",
            )


def of_roots(job: OrphanJob) -> Listing:
    """List storage itself, even if there is an inventory."""
    return Listing(shards=tuple(RootShard(root=root) for root in job.roots), at_once=_ROOTS_AT_ONCE)


async def of_parts(job: OrphanJob, storage: Storage, wanted: int) -> Listing:
    """List storage itself in about this many shards of several parts each. The size of a part is unknown: several parts
    even out the shards, and neighbouring parts, which are often of similar size, go to different shards."""
    each = math.ceil(wanted * _PARTS_PER_SHARD / len(job.roots))
    parts = [part for root in job.roots for part in await storage.parts(root, each)]
    count = min(len(parts), wanted)
    shards = tuple(PartsShard(parts=tuple(parts[number::count])) for number in range(count))
    return Listing(shards=shards, at_once=_ROOTS_AT_ONCE, divided=True)


def _of_shortlist(shortlist: Shortlist) -> Listing:
    roots = (RootShard(root=root) for root in shortlist.roots)
    recorded = (
        RecordedShard(objects=shortlist.recorded[start : start + _OBJECTS_PER_SHARD])
        for start in range(0, len(shortlist.recorded), _OBJECTS_PER_SHARD)
    )
    shards: tuple[Shard, ...] = (*roots, *_named(shortlist.objects), *recorded)
    return Listing(shards=shards or (RecordedShard(objects=()),), at_once=_ROOTS_AT_ONCE)


def _named(objects: tuple[str, ...]) -> Iterator[NamedShard]:
    for start in range(0, len(objects), _OBJECTS_PER_SHARD):
        yield NamedShard(paths=objects[start : start + _OBJECTS_PER_SHARD])


async def planned(job: OrphanJob, storage: Storage, wanted: int = 1) -> Listing:
    """The listing of what a job looks at. Its roots are divided into `wanted` shards if that is more than one."""
    match job.look_at:
        case Shortlist() as shortlist:
            return _of_shortlist(shortlist)
        case Inventory() as inventory:
            return await _of_inventory(job, inventory, storage)
        case Everything():
            return of_roots(job) if wanted == 1 else await of_parts(job, storage, wanted)
        case _:
            assert_never(job.look_at)


async def _of_inventory(job: OrphanJob, inventory: Inventory, storage: Storage) -> Listing:
    found = await lists.find(storage, inventory, job.roots)
    log.info("inventory_taken", address=found.address, created_at=found.created_at, data_files=len(found.files))
    source, asked = replace(found, files=()), inventory.asked
    files = (InventoryShard(source=source, file=file, roots=job.roots, without=asked) for file in found.files)
    listing = Listing(
        shards=(*files, *_named(asked)),
        at_once=_FILES_AT_ONCE,
        inventory=found.address,
        as_of=found.created_at,
        asked=len(asked),
    )
    if not found.files:
        listing.check_rows(0)
    return listing
