"""A store in memory, for tests and demonstrations. It keeps the same contract as the real ones.

Buckets are shared by name inside one process, so that a reader, a deleter and a writer opened apart see the
same objects. A test may set times and the clock, and may inject faults: see `Bucket`."""

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
from lakesweep.model.files import StoredObject, Went
from lakesweep.model.location import Location
from lakesweep.model.store_rules import BucketRules, LeftoverKind, LeftoverPage, StoreRules, Versioning, at
from lakesweep.ports.deleter import ANOTHER_OBJECT, TAKEN, Conditions, Deleted, DeleteStatus, Marker, Move, not_sent
from lakesweep.ports.storage import LISTING_SCHEMA, Part
from lakesweep.storage.adaptive_limiter import Gate
from lakesweep.storage.spec import NothingToClose, StorageSpec
from lakesweep.telemetry import requests

PAGE_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One object as it is kept."""

    data: bytes
    modified_at: datetime | None

    @property
    def etag(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


_PLAIN = BucketRules(versioning=Versioning.OFF, lifecycle=())


@dataclass(slots=True)
class Bucket:
    """All objects of one authority, by key."""

    name: str
    objects: dict[str, Held] = field(default_factory=dict)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    rules: BucketRules = _PLAIN
    """Whether it keeps versions, and which lifecycle rules it reports."""
    versions: dict[str, list[Held]] = field(default_factory=dict)
    """Versions deleted while it kept them, by key, the newest last."""
    faults: Callable[[str, str], None] | None = None
    """Called with (operation, address) before every call: list, list_page, directories, read, stat, stat_together, now,
    put, delete, copy; and with put_answer, delete_answer or copy_answer between the effect and the answer. The caller
    gets what it raises."""

    def set_modified(self, key: str, when: datetime | None) -> None:
        """Give an object another time; None makes it unknown."""
        self.objects[key] = Held(data=self.objects[key].data, modified_at=when)

    def meet_faults(self, operation: str, address: str) -> None:
        if self.faults is not None:
            self.faults(operation, address)


_buckets: dict[str, Bucket] = {}


def bucket(name: str) -> Bucket:
    return _buckets.setdefault(name, Bucket(name))


def forget(name: str) -> None:
    _buckets.pop(name, None)


class MemoryStorage(NothingToClose):
    """Reads objects. Has no way to delete or overwrite one."""

    def __init__(self) -> None:
        self._used: dict[str, Bucket] = {}

    async def list(self, root: Location) -> AsyncGenerator[pa.RecordBatch, None]:
        store = self._bucket(root)
        store.meet_faults("list", root.raw)
        prefix = root.as_directory().path
        # Directory markers are left out, as on S3.
        found = [
            (key, held) for key, held in sorted(store.objects.items()) if key.startswith(prefix) and key[-1:] != "/"
        ]
        requests.sent("list", max(1, -(-len(found) // PAGE_ROWS)))
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
        prefix = root.as_directory().path
        keys = sorted(key for key in self._bucket(root).objects if key.startswith(prefix))
        cuts = sorted({keys[at * len(keys) // wanted] for at in range(1, wanted)}) if keys else []
        return [
            Part(root=root, prefix=prefix, first=() if begin is None else (begin,), until=() if end is None else (end,))
            for begin, end in pairwise([None, *cuts, None])
        ]

    async def list_part(self, part: Part) -> AsyncGenerator[pa.RecordBatch, None]:
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
        store = self._bucket(root)
        requests.sent("list")
        store.meet_faults("directories", root.raw)
        prefix = root.as_directory().path
        below = (key[len(prefix) :].partition("/") for key in store.objects if key.startswith(prefix))
        return sorted({name for name, slash, _ in below if name and slash})

    async def directories_among(self, root: Location, names: Sequence[str]) -> Sequence[str]:
        return [name for name in await self.directories(root) if name in names]

    async def irregular(self, root: Location) -> Sequence[str]:
        self._bucket(root)
        return ()

    async def read(self, location: Location, limit: int | None = None) -> bytes:
        requests.sent("get")
        data = self._held("read", location).data
        if limit is not None and len(data) > limit:
            raise TooLarge(location.raw, limit)
        requests.sent("bytes_read", len(data))
        return data

    async def stat(self, location: Location) -> StoredObject:
        requests.sent("head")
        return _stored(location, self._held("stat", location))

    async def stat_together(self, one: Location, other: Location) -> tuple[StoredObject | None, StoredObject | None]:
        """Atomic: nothing happens in between."""
        requests.sent("list")
        store = self._bucket(one)
        store.meet_faults("stat_together", one.raw)
        return _seen(store, one), _seen(store, other)

    async def now(self) -> datetime:
        """The earliest clock of the buckets used so far: an early clock keeps more."""
        for store in self._used.values():
            store.meet_faults("now", f"memory://{store.name}/")
        return min((store.clock() for store in self._used.values()), default=datetime.now(UTC))

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


class MemoryRules(NothingToClose):
    """What the test set for the bucket."""

    async def rules(self, place: Location) -> StoreRules:
        return at(place, bucket(place.authority).rules)

    async def leftovers(self, place: Location) -> AsyncGenerator[LeftoverPage, None]:
        store, prefix = bucket(place.authority), place.as_directory().path
        old = [(key, one) for key, kept in store.versions.items() for one in kept if key.startswith(prefix)]
        files = [(f"{place.store}{key}", len(one.data)) for key, one in sorted(old, key=lambda found: found[0])]
        yield LeftoverPage(kind=LeftoverKind.NONCURRENT_VERSIONS, files=files, requests=1)
        yield LeftoverPage(kind=LeftoverKind.INCOMPLETE_UPLOADS, problem="a store in memory has no uploads")


def _stored(location: Location, held: Held) -> StoredObject:
    return StoredObject(location=location, size_bytes=len(held.data), modified_at=held.modified_at, etag=held.etag)


def _seen(store: Bucket, location: Location) -> StoredObject | None:
    held = store.objects.get(location.path)
    return None if held is None else _stored(location, held)


class MemoryDeleter(NothingToClose):
    """Deletes objects."""

    async def delete(self, paths: Sequence[str], conditions: Conditions | None = None) -> list[Deleted]:
        kept = await conditions.withheld(paths) if conditions else {}
        if why := conditions and conditions.ended():
            return [kept.get(path) or not_sent(path, why) for path in paths]
        requests.sent("delete", -(-len(paths) // PAGE_ROWS))
        return [kept.get(path) or self._delete(path, conditions) for path in paths]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:  # noqa: ARG002  # the port's
        return 0

    def _delete(self, path: str, conditions: Conditions | None) -> Deleted:
        location = Location.parse(path)
        store = bucket(location.authority)
        if _is_another(store.objects.get(location.path), path, conditions):
            return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
        try:
            store.meet_faults("delete", path)
            gone = store.objects.pop(location.path, None)
            marker = _kept_version(store, location.path, gone)
            store.meet_faults("delete_answer", path)
        except StorageError as exc:
            return Deleted(path=path, status=DeleteStatus.FAILED, why=exc.why, kind=exc.kind)
        if gone is None:
            return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
        went = Went.VERSIONS if marker else Went.FREED
        return Deleted(path=path, status=DeleteStatus.DELETED, went=went, delete_marker=marker)


def _is_another(held: Held | None, path: str, conditions: Conditions | None) -> bool:
    """Is this another object than the one that was judged?"""
    judged = conditions.etags.get(path) if conditions else None
    return held is not None and judged is not None and held.etag != judged


def _kept_version(store: Bucket, key: str, gone: Held | None) -> str | None:
    """The id of the delete marker with which a bucket with versions hides an object."""
    if gone is None or store.rules.versioning is not Versioning.ON:
        return None
    store.versions.setdefault(key, []).append(gone)
    return f"marker-{len(store.versions[key])}"


class MemoryMover(NothingToClose):
    """Moves objects as an object store does: a copy, then a delete."""

    async def to_trash(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        """A target with the same bytes means that the move was begun before."""
        return await self._move(moves, conditions, finish=True)

    async def back(self, moves: Sequence[Move], conditions: Conditions | None = None) -> list[Deleted]:
        return await self._move(moves, conditions, finish=False)

    async def uncover(self, markers: Sequence[Marker], conditions: Conditions | None = None) -> list[Deleted]:  # noqa: ARG002  # the port's
        return [
            Deleted(path=one.path, status=DeleteStatus.FAILED, why="this store keeps no versions") for one in markers
        ]

    async def _move(self, moves: Sequence[Move], conditions: Conditions | None, *, finish: bool) -> list[Deleted]:
        kept = await conditions.withheld([move.source for move in moves]) if conditions else {}
        if why := conditions and conditions.ended():
            return [kept.get(move.source) or not_sent(move.source, why) for move in moves]
        return [kept.get(move.source) or self._one(move, conditions, finish=finish) for move in moves]

    def _one(self, move: Move, conditions: Conditions | None, *, finish: bool) -> Deleted:
        path, source, target = move.source, Location.parse(move.source), Location.parse(move.target)
        here, there = bucket(source.authority), bucket(target.authority)
        held = here.objects.get(source.path)
        if held is None:
            return Deleted(path=path, status=DeleteStatus.ALREADY_GONE)
        if _is_another(held, path, conditions):
            return Deleted(path=path, status=DeleteStatus.SPARED, why=ANOTHER_OBJECT)
        try:
            there.meet_faults("copy", move.target)
            taken = there.objects.get(target.path)
            if taken is not None and not (finish and taken.data == held.data):
                return Deleted(path=path, status=DeleteStatus.SPARED, why=TAKEN)
            there.objects[target.path] = Held(data=held.data, modified_at=there.clock())
            there.meet_faults("copy_answer", move.target)
            here.meet_faults("delete", path)
            del here.objects[source.path]
            here.meet_faults("delete_answer", path)
        except StorageError as exc:
            return Deleted(path=path, status=DeleteStatus.FAILED, why=exc.why, kind=exc.kind)
        return Deleted(path=path, status=DeleteStatus.DELETED, went=Went.TRASH)


class MemoryWriter(NothingToClose):
    """Writes whole objects."""

    async def put(self, location: Location, data: bytes, *, create_only: bool) -> None:
        store = bucket(location.authority)
        requests.sent("put")
        store.meet_faults("put", location.raw)
        if create_only and location.path in store.objects:
            raise AlreadyThere(location.raw, "the object exists")
        store.objects[location.path] = Held(data=bytes(data), modified_at=store.clock())
        store.meet_faults("put_answer", location.raw)


def storage(_spec: StorageSpec) -> MemoryStorage:
    return MemoryStorage()


def rules(_spec: StorageSpec) -> MemoryRules:
    return MemoryRules()


def deleter(_spec: StorageSpec, _gate: Gate | None) -> MemoryDeleter:
    return MemoryDeleter()


def mover(_spec: StorageSpec, _gate: Gate | None) -> MemoryMover:
    return MemoryMover()


def writer(_spec: StorageSpec) -> MemoryWriter:
    return MemoryWriter()


async def credentials(_spec: StorageSpec) -> str | None:
    return None
