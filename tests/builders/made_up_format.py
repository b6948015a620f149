"""A made-up fourth table format, as small as one can be: numbered heads in `_ledger/`, each naming lists of files.

The newest `_ledger/N.head` is the truth: a JSON document with the table's id and its versions. A version has a time and
a list, `_ledger/ID.list`, which is a JSON list of the files that it needs. A commit creates the next head.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import AlreadyThere, CommitConflict, StorageError, Unreadable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot, Snapshot
from lakesweep.model.table import FormatFacts, FormatName, TableRef
from lakesweep.ports.references import REFERENCE_SCHEMA, Decode, References, ReferenceSource
from lakesweep.ports.run import Fence
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import ExpiringFiles, FileKind, MatchBy, ReadSources, Shortlist, TableView

LOG = "_ledger"
FACTS = FormatFacts(keys=("location",), retention="a table says nothing of its own")
_RETRIES = 3


def make_name() -> FormatName:
    """What a line in `FormatName` would make."""
    name = str.__new__(FormatName, "ledger")
    name._name_, name._value_ = "LEDGER", "ledger"
    return name


LEDGER = make_name()


@dataclass(frozen=True)
class LedgerLayout:
    prefix: str
    match_by: MatchBy = MatchBy.ADDRESS

    def classify(self, path: str) -> FileKind:
        relative = path.removeprefix(self.prefix)
        if relative.startswith(f"{LOG}/"):
            return FileKind(kind="list", stage=1) if path.endswith(".list") else FileKind(kind="head", reserved=True)
        return FileKind(kind="data") if path.endswith(".data") else FileKind(kind="other", foreign=True)


async def _read(read: ReadSources, source: ReferenceSource) -> AsyncIterator[str]:
    async for _, batch in read([source]):
        for path in batch.column("path").to_pylist():
            yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView(TableView):
    document: dict[str, Any]
    number: int
    storage: Storage = field(repr=False, compare=False)

    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        recent = self.snapshots[-policy.min_snapshots_to_keep :]
        going = [
            one for one in self.snapshots if one not in recent and now - one.committed_at > policy.max_snapshot_age
        ]
        keep = tuple(KeptSnapshot(id=one.id, why="young enough") for one in self.snapshots if one not in going)
        return ExpiryPlan(head=self.head, expire=tuple(going), keep=keep)

    async def expiring_files(self, expiring: ExpiryPlan, found: References, read: ReadSources) -> ExpiringFiles:
        names = [path for source in found.sources if not source.retained async for path in _read(read, source)]
        objects = tuple(sorted({*found.expired, *names}))
        return ExpiringFiles(shortlist=Shortlist(roots=(), objects=objects, tolerates_all=False))

    async def other_tables_beside(self, paths: Sequence[str]) -> Sequence[Location]:
        return ()

    async def references(self, expiring: ExpiryPlan, before: Self | None = None) -> References:
        going = {one.id for one in expiring.expire}
        stay = [one.id for one in self.snapshots if one.id not in going]
        gone = [one.id for one in (before or self).snapshots if one.id not in stay]
        sources = tuple(self._source(one, retained=one in stay) for one in (*stay, *gone))
        names = {one: self._list(one).raw for one in (*stay, *gone)}
        return References(
            retained=(self.head, *(names[one] for one in stay)),
            expired=tuple(names[one] for one in gone),
            sources=sources,
        )

    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        own = self.location.join(LOG).as_directory().raw
        return next((path for path in unreferenced if f"/{LOG}/" in path and not path.startswith(own)), None)

    async def explain(self, source: Location) -> tuple[str, ...]:
        return tuple(f"version {one.id} is read from it" for one in self.snapshots if self._list(one.id) == source)

    def _list(self, number: str) -> Location:
        return self.location.join(LOG, f"{number}.list")

    def _source(self, number: str, *, retained: bool) -> ReferenceSource:
        return ReferenceSource(location=self._list(number), format=self.ref.format, kind="list", retained=retained)


@dataclass(kw_only=True)
class LedgerTable:
    ref: TableRef
    location: Location
    tools: Tools
    executable: bool = True

    async def head(self) -> str:
        return self._head(await self._newest()).raw

    def place(self) -> Location:
        return self.location

    async def load(self) -> LedgerView:
        return await self._view(await self._newest())

    async def load_at(self, head: str, now_view: TableView) -> LedgerView | None:
        try:
            earlier = await self._view(int(Location.parse(head).name.removesuffix(".head")))
        except (Unreadable, ValueError):
            return None
        return earlier if earlier.table_uuid == now_view.table_uuid else None

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[LedgerView, ExpiryPlan]:
        for _ in range(_RETRIES):
            fresh = await self.load()
            plan = fresh.plan_expiry(policy, now)
            if plan.empty:
                return fresh, plan
            await fence.check()
            going = {one.id for one in plan.expire}
            left = [one for one in fresh.document["versions"] if one["id"] not in going]
            document = json.dumps(fresh.document | {"versions": left}).encode()
            try:
                await self.tools.writer.put(self._head(fresh.number + 1), document, create_only=True)
            except AlreadyThere:
                continue
            return await self.load(), plan
        raise CommitConflict(f"{self.ref} is committed to faster than it can be read")

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:
        return None

    def _head(self, number: int) -> Location:
        return self.location.join(LOG, f"{number}.head")

    async def _newest(self) -> int:
        directory, numbers = self.location.join(LOG).as_directory(), []
        async with aclosing(self.tools.storage.list(directory)) as pages:
            async for page in pages:
                names = [path.rpartition("/")[2] for path in page.column("path").to_pylist()]
                numbers += [int(name.removesuffix(".head")) for name in names if name.endswith(".head")]
        if not numbers:
            raise Unreadable(directory.raw, "there is no head")
        return max(numbers)

    async def _view(self, number: int) -> LedgerView:
        head = self._head(number)
        try:
            document = json.loads(await self.tools.storage.read(head))
            versions = [
                Snapshot(id=one["id"], committed_at=datetime.fromisoformat(one["at"])) for one in document["versions"]
            ]
        except (StorageError, ValueError, KeyError, TypeError) as exc:
            raise Unreadable(head.raw, str(exc)) from exc
        return LedgerView(
            ref=self.ref,
            head=head.raw,
            table_uuid=document.get("uuid"),
            location=self.location,
            roots=(self.location.as_directory(),),
            snapshots=tuple(versions),
            layout=LedgerLayout(self.location.as_directory().raw),
            document=document,
            number=number,
            storage=self.tools.storage,
        )


@dataclass(kw_only=True)
class LedgerFormat:
    spec: DatasetSpec
    tools: Tools
    name: FormatName = LEDGER

    async def tables(self) -> Sequence[TableRef]:
        found, prefix = set(), self.spec.location.as_directory().raw
        async with aclosing(self.tools.storage.list(self.spec.location.as_directory())) as pages:
            async for page in pages:
                for path in page.column("path").to_pylist():
                    name, marker, _ = path.removeprefix(prefix).partition(f"/{LOG}/")
                    if marker:
                        found.add(name)
        return [self._ref(name) for name in sorted(found)]

    async def open(self, ref: TableRef) -> LedgerTable:
        return LedgerTable(ref=ref, location=self.spec.location.join(ref.name), tools=self.tools)

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        return {ref: (self.spec.location.join(ref.name).as_directory(),) for ref in await self.tables()}

    def _ref(self, name: str) -> TableRef:
        return TableRef(tenant=self.spec.tenant, dataset=self.spec.dataset, name=name, format=self.name)


def decode(source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    try:
        paths = json.loads(data)
    except ValueError as exc:
        raise Unreadable(source.location.raw, f"not JSON: {exc}") from exc
    return pa.RecordBatch.from_arrays([pa.array(paths, pa.string())], schema=REFERENCE_SCHEMA)


# What `formats/registry.py` asks a format's module for.


def open_dataset(spec: DatasetSpec, tools: Tools) -> LedgerFormat:
    return LedgerFormat(spec=spec, tools=tools)


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> LedgerTable:
    return LedgerTable(ref=ref, location=place, tools=tools)


def decoder() -> Decode:
    return decode


@dataclass(kw_only=True)
class LedgerWriter:
    """Writes such tables without the code above."""

    place: Any
    """A place of `tests.builders.delta`: it puts, deletes and names objects."""
    versions: list[dict[str, str]] = field(default_factory=list)
    number: int = 0

    def commit(self, *files: str, at: datetime) -> None:
        """The next version needs exactly these files."""
        self.number += 1
        name = str(self.number)
        for file in files:
            if file not in self.place.names():
                self.place.put(file, b"data", at)
        paths = [self.place.location.join(file).raw for file in files]
        self.place.put(f"{LOG}/{name}.list", json.dumps(paths).encode(), at)
        self.versions.append({"id": name, "at": at.isoformat()})
        heads = [int(one.partition("/")[2][:-5]) for one in self.place.names() if one.endswith(".head")]
        head = max(heads, default=0) + 1
        self.place.put(f"{LOG}/{head}.head", json.dumps({"uuid": "u-1", "versions": self.versions}).encode(), at)
