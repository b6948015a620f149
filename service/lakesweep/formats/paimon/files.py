"""The files of one table, read from storage: names below its metadata directories, and whole small objects. Reads
only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from lakesweep.formats import reads
from lakesweep.model.errors import NotFound, StorageError, Unreadable
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.storage import KnownContents, Storage, moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One listed object, by its path below the directory that was listed."""

    name: str
    size_bytes: int
    modified_at: datetime | None
    etag: str | None

    @property
    def fingerprint(self) -> str:
        """Changes whenever the object is written anew."""
        return f"{self.name}|{self.size_bytes}|{self.modified_at}|{self.etag}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """One table directory on one storage."""

    storage: Storage
    location: Location
    contents: KnownContents | None = None
    """What was read before."""

    def at(self, *parts: str) -> Location:
        return self.location.join(*filter(None, parts))

    def manifest(self, name: str) -> Location:
        """Where manifests, their lists and index manifests are, of every branch."""
        return self.at("manifest", name)

    async def names(self, directory: str) -> list[Listed]:
        """Everything below one of the table's directories, sorted; empty when there is no such directory."""
        root = self.at(directory).as_directory()
        found = await reads.collect(self.storage, root, lambda page: _rows(page, len(root.raw)))
        return sorted(found, key=lambda listed: listed.name)

    async def read(self, location: Location) -> bytes:
        """One object that must be readable. NotFound passes through: the caller knows whether it may be gone."""
        return await self.storage.read(location)

    async def read_kept(self, location: Location, listed: Listed | None = None) -> bytes:
        """One object that must be readable: a store that fails is an Unreadable, NotFound passes through. With
        `listed`, what was read of it before may serve."""
        try:
            return await (self._read_listed(location, listed) if listed else self.read(location))
        except NotFound:
            raise
        except StorageError as exc:
            raise unreadable(location, exc) from exc

    async def _read_listed(self, location: Location, listed: Listed) -> bytes:
        stored = StoredObject(
            location=location, size_bytes=listed.size_bytes, modified_at=listed.modified_at, etag=listed.etag
        )
        return await reads.read_listed(self.storage, self.contents, stored)


def _rows(page: pa.RecordBatch, cut: int) -> list[Listed]:
    columns = (page.column(name).to_pylist() for name in ("path", "size_bytes", "etag"))
    rows = zip(*columns, moments(page.column("modified_at")), strict=True)
    return [Listed(name=path[cut:], size_bytes=size, modified_at=time, etag=etag) for path, size, etag, time in rows]


class Unanswered(Unreadable):
    """The storage gave no answer: the object may be whole."""


def unreadable(location: Location, error: Exception) -> Unreadable:
    """What a failed read of something that must be kept becomes."""
    if isinstance(error, StorageError):
        return Unanswered(location.raw, error.why)
    return Unreadable(location.raw, str(error))
