"""What the algorithm needs from the outside world. Every adapter passes the contract suite of its port.

The power to delete is not here: it lives in `cleanup.deleter`, and only the sweep imports it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, Snapshot
from lakesweep.model.table import FormatName, TableRef

REFERENCE_SCHEMA = pa.schema([pa.field("path", pa.string(), nullable=False)])
"""What a decoder returns: addresses (or bare names, see MatchBy) as the metadata spells them."""

TOLERATED = pa.field("tolerated", pa.bool_(), nullable=False)
"""A decoder may add this column. A true row keeps the file it names like any other, but the file may be absent
without the table being damaged (a Delta tombstone, a second spelling of an address)."""

ELSEWHERE = pa.field("elsewhere", pa.bool_(), nullable=False)
"""A decoder that adds TOLERATED may add this column behind it. A true row is a live file outside the roots that is only
counted: what the path may mean below the roots, and so keeps, other rows say."""


class Clock(Protocol):
    """Where `now` comes from. Injected everywhere, so that tests own time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        ...


class Places(Protocol):
    """Room for so many at once, like an asyncio.Semaphore."""

    def locked(self) -> bool:
        """Would `acquire` have to wait?"""
        ...

    async def acquire(self) -> bool:
        """Take a place, once there is one."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class MatchBy(StrEnum):
    """How references and listed objects are compared."""

    ADDRESS = "address"
    """Normalised full address: Iceberg, Delta."""
    NAME = "name"
    """Last path segment, unique by construction: Paimon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSource:
    """One immutable object that names live files: a manifest, a checkpoint part, a log file. Picklable.

    `retained=False` marks a source that only expiring snapshots use: what it names is deletable unless a
    retained source names it too, and failing to read it only shrinks the work.
    """

    location: Location
    format: FormatName
    kind: str
    retained: bool
    size_bytes: int | None = None
    """Recorded length; a different length is damage."""
    entries: int | None = None
    """Recorded number of entries, where something records it."""
    at_least: int | None = None
    """How many references there must be at least, by what metadata records: fewer in a cache are not believed."""
    context: tuple[tuple[str, str], ...] = ()
    """What the decoder must know besides the bytes (a table root, a partition layout)."""

    @property
    def cache_key(self) -> str:
        """Same key, same decoded rows: sources are immutable."""
        extra = "|".join(f"{name}={value}" for name, value in self.context)
        return f"{self.format}|{self.kind}|{self.location.raw}|{self.size_bytes}|{self.entries}|{extra}"


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Everything that names files, at one head."""

    retained: tuple[str, ...]
    """Paths named directly by metadata that stays: metadata files, manifest lists, manifests, statistics."""
    expired: tuple[str, ...]
    """The same, named only by what this cycle expires."""
    sources: tuple[ReferenceSource, ...]
    """What must be decoded for the rest. The same object appears once, retained if anything retained uses it."""
    released: tuple[str, ...] = ()
    """Paths the format itself has proven dead at this head although a source still spells them (a Delta
    checkpoint's add that a later commit removed; a Paimon manifest's ADD with its DELETE in another manifest).
    A source's mention of them does not count as retained; `retained` above always does."""
    tolerated: tuple[str, ...] = ()
    """Kept exactly like `retained`, but never `missing`: see TOLERATED."""
    elsewhere: tuple[str, ...] = ()
    """Live files outside the roots that are only counted: see ELSEWHERE."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Everything that metadata names directly and that therefore stays."""
        return self.retained + self.tolerated


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """What a format's layout says of an unreferenced object."""

    kind: str
    """A short noun for reports: data, manifest, metadata, statistics, …"""
    reserved: bool = False
    """Belongs to the format but is never ours to delete (hints, hidden names, locks)."""
    foreign: bool = False
    """Not a name the format writes: reported, never deleted."""
    stage: int = 0
    """Deletion order inside one plan. What closes history to readers goes below 0, before all other files."""


class Layout(Protocol):
    """Names and places of one table. Picklable and pure, so that it also runs in Spark workers."""

    @property
    def match_by(self) -> MatchBy:
        """How this format's references and listed objects are compared."""
        ...

    def classify(self, path: str) -> FileKind:
        """What kind of object a raw listed path is, judged by name and place only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlist:
    """What a format wants looked at in place of a whole listing. Nothing else is a candidate, and since most live
    files are not looked at, the format's references are all `tolerated`: none counts as missing."""

    roots: tuple[Location, ...]
    """Listed as usual."""
    objects: tuple[str, ...]
    """Raw addresses of objects outside those roots, asked for one by one; those that are absent are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as loaded at one moment. `native` is the format's own parsed metadata, opaque to the algorithm."""

    ref: TableRef
    head: str
    """Identity of this state: equal heads mean nothing was committed in between."""
    table_uuid: str | None
    location: Location
    roots: tuple[Location, ...]
    """Every place this table may own files in, none inside another."""
    snapshots: tuple[Snapshot, ...]
    layout: Layout
    minimum_age: timedelta = timedelta(0)
    """The format's own retention of unreferenced files, where it has one; the longer of it and the grace rules."""
    stream: str | None = None
    """A stream that its history shows, if it shows one: unreferenced files then stay for `stream_state` as well."""
    counted_files: int | None = None
    """Distinct live files by the table's own exact count, where it keeps one: fewer references mean damage."""
    estimated_files: int | None = None
    """From metadata summaries, to choose an engine; None when unknown."""
    position: int | None = None
    """How far the history has come, where that number never goes back: Delta's version."""
    moved_from: str | None = None
    """Where parts of its own history were written, if that is outside of all its places: then it has been moved."""
    shortlist: Shortlist | None = None
    """Given when the table is not to be listed as a whole."""
    history: tuple[str, ...] = ()
    """Raw addresses of the snapshots themselves, where each is an object that goes before its files."""
    native: Any = None


class Fence(Protocol):
    """Proof, asked for before every commit and every batch, that the table is still ours."""

    async def check(self) -> None:
        """Raise LeaseLost if it is not."""
        ...

    def check_time(self) -> None:
        """The same by our own clock, one that goes on while the machine sleeps, and without waiting for anything:
        asked with a request in hand. Raise LeaseLost if the lease has ended, or was known to be lost."""
        ...


class Table(Protocol):
    """One table, opened. All decisions are pure functions of a TableState; only `load` and commits do I/O."""

    ref: TableRef
    executable: bool
    """False when nothing proves which metadata is current (a bare Iceberg location): plan only."""

    async def head(self) -> str:
        """The current head, as cheaply as the format can tell."""
        ...

    def place(self) -> Location | None:
        """Where the table is, as far as this handle knows without asking anybody: also if it cannot be loaded."""
        ...

    async def load(self) -> TableState:
        """Read the table now. Raises Refused, Unreadable or CatalogUnavailable, never returns half a table."""
        ...

    async def load_at(self, head: str, now_state: TableState) -> TableState | None:
        """The table as it was at an earlier head, if that can still be read; None when it cannot."""
        ...

    def plan_expiry(self, state: TableState, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        """Which snapshots go by the format's own rules. Pure."""
        ...

    async def commit_expiry(
        self, state: TableState, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableState, ExpiryPlan]:
        """Commit what plan_expiry says, retried on conflict from fresh metadata.

        Returns the state after the commit, and the plan that was really committed.
        """
        ...

    async def references(self, state: TableState, expiring: ExpiryPlan, before: TableState | None = None) -> References:
        """What names files at `state`. Snapshots that `expiring` lists give the expired side: read from
        `state` itself when they are still in it (a dry run), else from `before` (they were committed away)."""
        ...

    async def foreign_owner(self, state: TableState, unreferenced: Sequence[str]) -> str | None:
        """Evidence that another table lives in these roots, found among unreferenced listed paths; None if none."""
        ...

    async def after_sweep(self, state: TableState, expiring: ExpiryPlan) -> None:
        """What must happen once the files are gone (hints, health checks)."""
        ...

    async def explain(self, state: TableState, source: Location) -> tuple[str, ...]:
        """Which snapshots and refs lead to a source or a directly named path, as sentences."""
        ...


@runtime_checkable
class ClosesFirst(Protocol):
    """A table whose expired history is closed by deleting objects: plan rows of stages below 0 (Paimon). Delta deletes
    such objects too, but what its VACUUM takes does not depend on whether they are gone."""

    async def closed(self) -> None:
        """Called once in a sweep, when those objects are gone, and before any other goes. What is not gone by then has
        to keep its files."""
        ...


@runtime_checkable
class MergesManifests(Protocol):
    """A table whose manifests can be merged by a commit of their own (Paimon)."""

    async def compact_manifests(self, now: datetime, fence: Fence) -> object | None:
        """Merge; None when there is nothing to merge."""
        ...


class TableFormat(Protocol):
    """One dataset's way to its tables: a catalog or a warehouse."""

    name: FormatName

    async def tables(self) -> Sequence[TableRef]:
        """Discover. Never from a hard-coded list."""
        ...

    async def open(self, ref: TableRef) -> Table:
        """A handle on one table; reads nothing yet."""
        ...

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """Where every table of this dataset keeps files, for the overlap guard. Unreadable tables are left out."""
        ...


@runtime_checkable
class CatalogTables(Protocol):
    """A TableFormat whose tables are those of a catalog, which other datasets may ask too."""

    @property
    def catalog_identity(self) -> Hashable:
        """Equal only for datasets that certainly ask one and the same catalog. Never printed: it may hold secrets."""
        ...


Decode = Callable[[ReferenceSource, bytes], pa.RecordBatch]
"""Bytes to references. Pure, guarded against truncation, runs in threads, processes and Spark workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """A ready file list that is read instead of listing, and how old it may be."""

    address: Location
    """A manifest of S3 Inventory, a Parquet file, or a folder with either below it."""
    not_before: datetime
    """A list made before this is refused."""
    not_after: datetime
    """One made after this has a wrong clock, so that its age says nothing: refused as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanJob:
    """What an engine needs to plan one table. It lists first and calls `mark` only when the listing is complete."""

    ref: TableRef
    roots: tuple[Location, ...]
    layout: Layout
    cutoff: datetime
    """Unreferenced objects modified at or after this stay."""
    mark: Callable[[], Awaitable[Marked]]
    rows_path: str
    """Where the plan's rows go (a local Parquet file)."""
    inventory: Inventory | None = None
    """Read this instead of listing the roots. What it does not know is never a candidate."""
    shortlist: Shortlist | None = None
    """Look at this instead of listing the roots."""
    history: tuple[str, ...] = ()
    """Objects to ask for singly, whatever an inventory says: a snapshot that it is too old to know would stay, and so
    would its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """What `mark` found after the listing: the state it was read from and the references."""

    state: TableState
    references: References


class Engine(Protocol):
    """Finds orphans. Every engine gives the same plan, to the last file, for the same table."""

    name: str

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        """List, then mark, then judge."""
        ...

    def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncIterator[tuple[ReferenceSource, pa.RecordBatch]]:
        """Decode some sources now, for revalidation and for explain. Raises Unreadable on a retained one."""
        ...

    async def aclose(self) -> None:
        """Stop pools and sessions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A step of a cycle, for progress bars and logs."""

    phase: str
    done: int = 0
    total: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)


ReportProgress = Callable[[Progress], None]
