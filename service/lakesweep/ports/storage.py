"""What storage must be able to do, for all formats and engines: list, read, write. Deleting is not here, on purpose.
Implementations are in `storage`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pyarrow as pa

from lakesweep.model.errors import NotFound
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location

LISTING_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # raw full address, exactly as listed
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_at", pa.timestamp("ms", tz="UTC")),  # null = unknown = keep
        pa.field("etag", pa.string()),
    ]
)
"""One row per stored object, as every Storage lists it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moments(times: pa.Array) -> Sequence[datetime | None]:
    """The column `modified_at` in Python. Arrow looks the zone up for every row, which takes ten times as long."""
    since = times.view(pa.int64()).to_pylist()
    return [None if one is None else _EPOCH + timedelta(milliseconds=one) for one in since]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a root, as its store has divided it. Picklable: any process can list it."""

    root: Location
    prefix: str
    """Only paths with this prefix."""
    flat: bool = False
    """Only what is directly there, nothing below a further slash."""
    after: str | None = None
    """Only what follows this path in the store's own order."""
    first: tuple[str, ...] = ()
    """The part begins with the first of these paths that is listed; without any, at once."""
    until: tuple[str, ...] = ()
    """The part ends before the first of these paths that is listed; without any, at the end."""


class Storage(Protocol):
    """Reading. Deliberately without any way to delete or overwrite. Errors: NotFound, Denied, Unavailable, TooLarge.
    Paths are raw; keys are never URL-parsed."""

    def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """All objects below `root` (as a directory: `t1` never lists `t10/`), in batches of LISTING_SCHEMA. No order is
        promised. A root that does not exist lists nothing. Any error raises: a partial listing never looks complete."""

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Divide `root` into about this many parts of unknown sizes, at a small cost. Together they contain what `list`
        lists, each object in exactly one part. A small or indivisible root is one part."""

    def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """The same as `list`, for one part. Raises OutOfOrder if the store's order does not allow such parts."""

    async def directories(self, root: Location) -> Sequence[str]:
        """The names of the directories directly below `root`, in order; nothing deeper is read. On an object store a
        directory is a name that objects share up to a slash. A root that does not exist has none. Any error raises."""

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        """Those of the names that may be directories directly below `root`, with as few requests as the store needs for
        that. Below a name that is left out there is certainly no object. Any error raises."""

    async def irregular(self, root: Location) -> Sequence[str]:
        """Addresses below `root`, at any depth, of what `list` leaves out although readers may see a file there: links,
        pipes and the like, in order. An object store has none. Any error raises."""

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object; TooLarge if it has more than `limit` bytes, and no more than that are read."""

    async def stat(self, location: Location) -> StoredObject:
        """One object's size, time and etag, or NotFound."""

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        """Two objects of one directory in one step; None for a missing one.

        Two calls of `stat` may see the first before a change and the second after it. An object store answers by one
        listing, a disk by two system calls in a row."""

    async def now(self) -> datetime:
        """The store's own clock, by which object ages are judged; of several, the slowest. Only stores that were used
        before are asked: which others there are is not known here."""

    async def aclose(self) -> None:
        """Close connections and threads."""


class KnownContents(Protocol):
    """Contents of objects that were read before. Never required: it may forget anything."""

    async def load(self, stored: StoredObject) -> bytes | None:
        """The contents of the object that a listing has just shown like this, if they are known for certain."""

    async def store(self, stored: StoredObject, data: bytes) -> None:
        """This was read after the listing that showed the object like this."""


class Writer(Protocol):
    """Writing whole objects: commits, artefacts. Separate from reading, and without any way to delete."""

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write atomically: readers see nothing or all of it. With `create_only` exactly one of several racing
        writers wins and the others get AlreadyThere."""

    async def aclose(self) -> None:
        """Close connections and threads."""


async def stat_or_none(storage: Storage, location: Location) -> StoredObject | None:
    """The object, or None if there is none. Raises every other error of the store."""
    try:
        return await storage.stat(location)
    except NotFound:
        return None
