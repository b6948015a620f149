"""A store in memory, for tests and demonstrations. It keeps the same contract as the real ones.

Buckets are shared by name inside one process, so that a reader, a deleter and a writer opened apart see the
same objects. A test may set times and the clock, and may inject faults: see `Bucket`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.model.errors import AlreadyThere, NotFound, StorageError, TooLarge
from lakesweep.model.files import StoredObject
from lakesweep.model.location import Location
from lakesweep.ports.deleter import ANOTHER_OBJECT, Conditions, Deleted, DeleteStatus, not_sent
from lakesweep.ports.storage import LISTING_SCHEMA, Part
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.spec import StorageSpec

PAGE_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One object as it is kept."""

    data: bytes
    modified_at: datetime | None

    @property
    def etag(self) -> str:
        """A digest, as S3 gives for small objects."""
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class Bucket:
    """All objects of one authority, by key."""

    name: str
    objects: dict[str, Held] = field(default_factory=dict)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    faults: Callable[[str, str], None] | None = None
    """Called with (operation, address) before every call: list, list_page, directories, read, stat, now, put, delete;
    and, with put_answer or delete_answer, between the effect and its answer. What it raises is what the caller gets."""

    def set_modified(self, key: str, when: datetime | None) -> None:
        """Give an object another time; None makes it unknown."""
        self.objects[key] = Held(data=self.objects[key].data, modified_at=when)

    def meet_faults(self, operation: str, address: str) -> None:
        """Let the test have its say."""
        if self.faults is not None:
            self.faults(operation, address)


_buckets: dict[str, Bucket] = {}


def bucket(name: str) -> Bucket:
    """The bucket of that name, made on first use."""
    return _buckets.setdefault(name, Bucket(name))


def forget(name: str) -> None:
    """Drop a bucket and everything in it."""
    _buckets.pop(name, None)


class MemoryStorage:
    """Reads objects. Has no way to delete or overwrite one."""

    def __init__(self) -> None:
        self._used: dict[str, Bucket] = {}

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        """All objects below `root`, in key order."""
        store = self._bucket(root)
        store.meet_faults("list", root.raw)
        prefix = root.as_directory().path
        # Directory markers are left out, as on S3.
        found = [
            (key, held) for key, held in sorted(store.objects.items()) if key.startswith(prefix) and key[-1:] != "/"
        ]
        for start in range(0, len(found), PAGE_ROWS):
            store.meet_faults("list_page", root.raw)
            await asyncio.sleep(0)
            rows = [
                {
                    "path": f"{root.scheme}://{root.authority}/{key}",
                    "size_bytes": len(held.data),
                    "modified_at": held.modified_at,
                    "etag": held.etag,
                }
                for key, held in found[start : start + PAGE_ROWS]
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=LISTING_SCHEMA)

    async def parts(self, root: Location, wanted: int) -> Sequence[Part]:
        """Ranges of keys with about as many objects each."""
        prefix = root.as_directory().path
        keys = sorted(key for key in self._bucket(root).objects if key.startswith(prefix))
        cuts = sorted({keys[at * len(keys) // wanted] for at in range(1, wanted)}) if keys else []
        return [
            Part(root=root, prefix=prefix, first=() if begin is None else (begin,), until=() if end is None else (end,))
            for begin, end in pairwise([None, *cuts, None])
        ]

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
        """Those of the root's objects that are in the range."""
        top = f"{part.root.scheme}://{part.root.authority}/"
        begin, end = (f"{top}{one[0]}" if one else None for one in (part.first, part.until))
        async with aclosing(self.list(part.root)) as pages:
            async for page in pages:
                paths = page.column("path")
                inside = pa.repeat(pa.scalar(True), len(paths))
                inside = inside if begin is None else pc.and_(inside, pc.greater_equal(paths, begin))
                inside = inside if end is None else pc.and_(inside, pc.less(paths, end))
                if pc.any(inside).as_py():
                    yield page.filter(inside)

    async def directories(self, root: Location) -> Sequence[str]:
        """What keys share up to the next slash."""
        store = self._bucket(root)
        store.meet_faults("directories", root.raw)
        prefix = root.as_directory().path
        below = (key[len(prefix) :].partition("/") for key in store.objects if key.startswith(prefix))
        return sorted({name for name, slash, _ in below if name and slash})

    async def irregular(self, root: Location) -> Sequence[str]:
        """Every object is listed."""
        self._bucket(root)
        return ()

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        """The whole object."""
        data = self._held("read", location).data
        if limit is not None and len(data) > limit:
            raise TooLarge(location.raw, limit)
        return data

    async def stat(self, location: Location) -> StoredObject:
        """Size, time and etag."""
        held = self._held("stat", location)
        return StoredObject(location=location, size_bytes=len(held.data), modified_at=held.modified_at, etag=held.etag)

    async def now(self) -> datetime:
        """The earliest clock of the buckets used so far: an early clock keeps more."""
        for store in self._used.values():
            store.meet_faults("now", f"memory://{store.name}/")
        return min((store.clock() for store in self._used.values()), default=datetime.now(UTC))

    async def aclose(self) -> None:
        """Nothing to give back; the buckets stay."""

    def _bucket(self, location: Location) -> Bucket:
        store = bucket(location.authority)
        self._used[store.name] = store
        return store

    def _held(self, operation: str, location: Location) -> Held:
        store = self._bucket(location)
        store.meet_faults(operation, location.raw)
        try:
            return store.objects[location.path]
        except KeyError as exc:
            raise NotFound(location.raw, "no such object") from exc


class MemoryDeleter:
    """The power to delete."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        """One answer per path, in the order asked."""
        kept = await conditions.withheld(paths) if conditions else {}
        if why := conditions and conditions.ended():
            return [kept.get(path) or not_sent(path, why) for path in paths]
        return [kept.get(path) or self._delete(path, conditions) for path in paths]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002  # the port's
        """There are no directories here."""
        return 0

    async def aclose(self) -> None:
        """Nothing to give back; the buckets stay."""

    def _delete(self, path: str, conditions: Conditions | None) -> Deleted:
        location = Location.parse(path)
        store = bucket(location.authority)
        judged = conditions.etags.get(path) if conditions else None
        held = store.objects.get(location.path)
        if held is not None and judged is not None and held.etag != judged:
            return Deleted(path=path, fate=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
        try:
            store.meet_faults("delete", path)
            gone = store.objects.pop(location.path, None)
            store.meet_faults("delete_answer", path)
        except StorageError as exc:
            return Deleted(path=path, fate=DeleteStatus.FAILED, why=exc.why, kind=exc.kind)
        return Deleted(path=path, fate=DeleteStatus.ALREADY_GONE if gone is None else DeleteStatus.DELETED)


class MemoryWriter:
    """Writes whole objects."""

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        """Write, or AlreadyThere."""
        store = bucket(location.authority)
        store.meet_faults("put", location.raw)
        if create_only and location.path in store.objects:
            raise AlreadyThere(location.raw, "the object exists")
        store.objects[location.path] = Held(data=bytes(data), modified_at=store.clock())
        store.meet_faults("put_answer", location.raw)

    async def aclose(self) -> None:
        """Nothing to give back; the buckets stay."""


def storage(_spec: StorageSpec) -> MemoryStorage:
    """Reading."""
    return MemoryStorage()


def deleter(_spec: StorageSpec, _gate: Gate | None) -> MemoryDeleter:
    """Deleting."""
    return MemoryDeleter()


def writer(_spec: StorageSpec) -> MemoryWriter:
    """Writing."""
    return MemoryWriter()
