"""A table format made for engine tests: a source is a JSON list of paths. Nothing else about it is special."""

import asyncio
import copy
import json
import random
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from lakesweep.model.errors import OutOfOrder, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.engine import Everything, Inventory, Marked, OrphanJob
from lakesweep.ports.references import REFERENCE_SCHEMA, References, ReferenceSource
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.ports.table import FileKind, MatchBy, Shortlist, TableState
from lakesweep.storage.memory import Held, MemoryStorage, bucket, forget

CUTOFF = datetime(2026, 3, 1, tzinfo=UTC)
OLD = CUTOFF - timedelta(days=2)
YOUNG = CUTOFF + timedelta(hours=1)
REF = TableRef(tenant=TenantId("acme"), dataset="prod", name="t", format=FormatName.ICEBERG)

BUCKETS = ("a", "b", "c", "metadata", "inventory")
KINDS = {
    "data": FileKind(kind="data"),
    "meta": FileKind(kind="metadata", stage=1),
    "lock": FileKind(kind="lock", reserved=True),
}
STRANGE = FileKind(kind="unknown", foreign=True)


@dataclass(frozen=True)
class ListLayout:
    match_by: MatchBy = MatchBy.ADDRESS

    def classify(self, path):
        return KINDS.get(path.rpartition(".")[2], STRANGE)


def decode(source, data):
    try:
        paths = json.loads(data)
    except ValueError as exc:
        raise Unreadable(source.location.raw, f"not JSON: {exc}") from exc
    if source.entries is not None and len(paths) != source.entries:
        raise Unreadable(source.location.raw, "wrong number of entries")
    return pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], schema=REFERENCE_SCHEMA)


def decoder(_format):
    return decode


@dataclass
class ListLake:
    """Objects in memory and what names them. Buckets are this lake's own: `b` in a path is `<prefix>b`."""

    roots: tuple[str, ...] = ("s3://b/t",)
    match_by: MatchBy = MatchBy.ADDRESS
    named: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    sources: list[ReferenceSource] = field(default_factory=list)
    during_mark: list = field(default_factory=list)
    """Called by `mark`, after the listing."""
    inventory: str | None = None
    """Where a ready file list is."""
    shortlist: Shortlist | None = None
    tolerated: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def __post_init__(self):
        for name in BUCKETS:
            forget(name)

    def put(self, path, modified_at=OLD, data=b"x"):
        location = Location.parse(path)
        bucket(location.authority).objects[location.path] = Held(data=data, modified_at=modified_at)
        return path

    def source(self, paths, *, retained=True, **changes):
        """A source that names `paths`, stored out of the table's way."""
        data = changes.pop("data", None) or json.dumps(paths).encode()
        path = f"s3://metadata/source-{len(self.sources)}"
        self.put(path, data=data)
        self.sources.append(
            ReferenceSource(
                location=Location.parse(path),
                format=FormatName.ICEBERG,
                kind="list",
                retained=retained,
                **{"size_bytes": len(data), "entries": len(paths), **changes},
            )
        )
        return self.sources[-1]

    async def mark(self):
        for step in self.during_mark:
            step()
        layout = ListLayout(self.match_by)
        state = TableState(
            ref=REF,
            head="head-1",
            table_uuid="u",
            location=Location.parse(self.roots[0]),
            roots=tuple(map(Location.parse, self.roots)),
            snapshots=(),
            layout=layout,
        )
        references = References(
            retained=tuple(self.named),
            expired=tuple(self.expired),
            released=tuple(self.released),
            sources=tuple(self.sources),
            tolerated=tuple(self.tolerated),
            elsewhere=tuple(self.elsewhere),
        )
        return Marked(state=state, references=references)

    def job(self, rows_path):
        return OrphanJob(
            ref=REF,
            roots=tuple(map(Location.parse, self.roots)),
            layout=ListLayout(self.match_by),
            cutoff=CUTOFF,
            mark=self.mark,
            rows_path=str(rows_path),
            look_at=self.shortlist or self._inventory() or Everything(),
        )

    def _inventory(self):
        return self.inventory and Inventory(
            address=Location.parse(self.inventory), not_before=CUTOFF, not_after=CUTOFF + timedelta(days=2)
        )


class Travelling:
    """Opens a store in memory, also in another process: it takes along what the buckets hold when it leaves."""

    def __init__(self, storage):
        self._storage = storage

    def __call__(self):
        return self._storage

    def __reduce__(self):
        storage = copy.copy(self._storage)
        storage._used = {}
        held = {name: (dict(bucket(name).objects), bucket(name).faults) for name in BUCKETS}
        return arrive, (storage, held)


def arrive(storage, held):
    for name, (objects, faults) in held.items():
        forget(name)
        bucket(name).objects.update(objects)
        bucket(name).faults = faults
    return Travelling(storage)


class Shuffled(MemoryStorage):
    """The same objects in another order and other pages: no order is promised."""

    def __init__(self, seed, page_rows):
        super().__init__()
        self._random = random.Random(seed)
        self._page_rows = page_rows

    async def list(self, root):
        rows = []
        async with aclosing(super().list(root)) as pages:
            async for page in pages:
                rows.extend(page.to_pylist())
        self._random.shuffle(rows)
        for start in range(0, len(rows), self._page_rows):
            await asyncio.sleep(0)
            yield pa.RecordBatch.from_pylist(rows[start : start + self._page_rows], schema=LISTING_SCHEMA)


class Unordered(MemoryStorage):
    """Can be listed whole only, which shows when it is too late."""

    async def list_part(self, part):
        async with aclosing(super().list_part(part)) as pages:
            async for page in pages:
                yield page
        raise OutOfOrder(part.root.raw, "b before a")


class Stuck(MemoryStorage):
    """Hangs in one kind of call until it is cancelled. In whichever process, the file `sign` says that it does."""

    def __init__(self, where, sign):
        super().__init__()
        self._where = where
        self._sign = sign

    async def reached(self):
        while not self._sign.exists():
            await asyncio.sleep(0.02)

    async def _hang(self, call):
        if call == self._where:
            self._sign.touch()
            await asyncio.Event().wait()

    async def list(self, root):
        async with aclosing(super().list(root)) as pages:
            async for page in pages:
                yield page
                await self._hang("list")

    async def read(self, location, limit=None):
        await self._hang("read")
        return await super().read(location, limit)

    async def stat(self, location):
        await self._hang("stat")
        return await super().stat(location)
