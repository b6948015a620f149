"""One table, opened, and the dataset it comes from. A format implements both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, Self, TypeVar, runtime_checkable

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, Snapshot
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.references import References
from lakesweep.ports.run import Fence


class MatchBy(StrEnum):
    """How references and listed objects are compared."""

    ADDRESS = "address"
    """Normalised full address: Iceberg, Delta."""
    NAME = "name"
    """Last path segment, unique by construction: Paimon."""


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
    """A table as loaded at one moment: what guards, engines and stores need of it. Values only."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView(TableState, ABC):
    """A loaded table that can be asked about itself. Each format has its own, with its parsed metadata typed."""

    @abstractmethod
    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        """Which snapshots go by the format's own rules. No I/O."""

    @abstractmethod
    async def references(self, expiring: ExpiryPlan, before: Self | None = None) -> References:
        """What names files at this state. Snapshots that `expiring` lists give the expired side: read from this
        state itself when they are still in it (a dry run), else from `before` (they were committed away)."""

    @abstractmethod
    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        """Evidence that another table lives in these roots, found among unreferenced listed paths; None if none."""

    @abstractmethod
    async def explain(self, source: Location) -> tuple[str, ...]:
        """Which snapshots and refs lead to a source or a directly named path, as sentences."""


_View = TypeVar("_View", bound=TableView)


def own_view(kind: type[_View], view: TableView) -> _View:
    """A view as the format's own kind. A handle is only ever given views that a handle on the same table loaded."""
    if not isinstance(view, kind):
        raise TypeError(f"{view.ref} was loaded as {type(view).__name__}, not as {kind.__name__}")
    return view


class Table(Protocol):
    """One table, opened: it is read, and it is changed. What was read answers for itself, see TableView."""

    ref: TableRef
    executable: bool
    """False when nothing proves which metadata is current (a bare Iceberg location): plan only."""

    async def head(self) -> str:
        """The current head, as cheaply as the format can tell."""
        ...

    def place(self) -> Location | None:
        """Where the table is, as far as this handle knows without asking anybody: also if it cannot be loaded."""
        ...

    async def load(self) -> TableView:
        """Read the table now. Raises Refused, Unreadable or CatalogUnavailable, never returns half a table."""
        ...

    async def load_at(self, head: str, now_view: TableView) -> TableView | None:
        """The table as it was at an earlier head, if that can still be read; None when it cannot."""
        ...

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableView, ExpiryPlan]:
        """Commit what plan_expiry says, retried on conflict from fresh metadata.

        Returns the table after the commit, and the plan that was really committed.
        """
        ...

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:
        """What must happen once the files are gone (hints, health checks)."""
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
class SeesNewcomers(Protocol):
    """A table whose place tells of commits that its own head never shows: under a second catalog (Iceberg)."""

    async def has_newcomers(self) -> bool:
        """Has anything come that `references` has not looked at yet? Then it is to be asked for anew, whatever the
        head says."""
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
