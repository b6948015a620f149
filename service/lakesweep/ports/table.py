"""One table, opened, and the dataset it comes from. A format implements both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, Self, TypeVar, runtime_checkable

import pyarrow as pa

from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, Snapshot
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.run import Fence

ReadSources = Callable[[Sequence[ReferenceSource]], AsyncIterator[tuple[ReferenceSource, pa.RecordBatch]]]
"""See Engine.read_references."""


class MatchBy(StrEnum):
    """How references and listed objects are compared."""

    ADDRESS = "address"
    """Normalised full address: Iceberg, Delta."""
    NAME = "name"
    """Last path segment, unique by construction: Paimon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """How a format's layout classifies an unreferenced object."""

    kind: str
    """A short noun for reports: data, manifest, metadata, statistics, …"""
    reserved: bool = False
    """Belongs to the format but must never be deleted (hints, hidden names, locks)."""
    foreign: bool = False
    """Not a name that the format writes: reported, never deleted."""
    stage: int = 0
    """Deletion order inside one plan. Files that close history to readers have stages below 0 and go before all
    others."""


class Layout(Protocol):
    """The names and places of one table's files. Picklable and pure, so that it also runs in Spark workers."""

    @property
    def match_by(self) -> MatchBy:
        """How this format's references and listed objects are compared."""

    def classify(self, path: str) -> FileKind:
        """What kind of object a raw listed path is, judged by name and place only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortlist:
    """The objects that a format wants to check instead of a whole listing. Nothing else is a candidate. Because most
    live files are not looked at, the format's references are all `tolerated`: none counts as missing."""

    roots: tuple[Location, ...]
    """Listed as usual."""
    objects: tuple[str, ...]
    """Raw addresses of objects outside those roots, checked one by one. Absent ones are left out."""
    recorded: tuple[tuple[str, int], ...] = ()
    """Raw addresses with the sizes that metadata records. They are not checked in storage: names are never reused, and
    the table's own history says that they were written."""
    tolerates_all: bool = True
    """False if the format's references are not all `tolerated`: then no engine looks for missing files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringFiles:
    """What expiring snapshots name, found without a listing."""

    shortlist: Shortlist
    """Exactly these objects, whether or not something retained names them too: the plan's join decides."""
    sources: frozenset[str] = frozenset()
    """Cache keys of sources that were already read and need not be read again."""
    names: tuple[str, ...] = ()
    """What those sources name, as they spell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as loaded at one moment: what guards, engines and stores need. Values only."""

    ref: TableRef
    head: str
    """Identity of this state: equal heads mean nothing was committed in between."""
    table_uuid: str | None
    location: Location
    roots: tuple[Location, ...]
    """Every place where this table may own files, none inside another."""
    snapshots: tuple[Snapshot, ...]
    """The states that are retained now, in no promised order; in Paimon without those of branches. A ghost has none."""
    layout: Layout
    minimum_age: timedelta = timedelta(0)
    """The format's own retention of unreferenced files, if it has one. The longer of it and the grace period
    applies."""
    stream: str | None = None
    """A stream in the table's history, if there is one: unreferenced files then also stay for `stream_state`."""
    counted_files: int | None = None
    """The table's own exact count of distinct live files, if it keeps one: fewer references mean damage."""
    estimated_files: int | None = None
    """From metadata summaries, to choose an engine; None when unknown."""
    position: int | None = None
    """A number of the history that never decreases, if there is one: Delta's version."""
    moved_from: str | None = None
    """Where parts of its own history were written, if outside of all its places: then the table was moved."""
    shortlist: Shortlist | None = None
    """Set if the table must not be listed completely."""
    history: tuple[str, ...] = ()
    """Raw addresses of the snapshots themselves, if each is an object that is deleted before its files."""
    goes_whole: bool = False
    """For a ghost: nothing is deleted while one of its files is young, and only exactly the plan that a person approved
    is executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView(TableState, ABC):
    """A loaded table that answers questions about itself. Each format has its own, with typed metadata."""

    @abstractmethod
    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        """Decide which snapshots expire by the format's own rules. No I/O."""

    def next_expiry(self, policy: CleanupPolicy, after: datetime) -> datetime | None:
        """The first minute in which `plan_expiry` expires more than at `after`, if nothing is committed meanwhile. None
        if that does not happen within a year. Found by bisection: what may expire once may expire from then on."""
        begun = self.plan_expiry(policy, after)
        minute, span = timedelta(minutes=1), 366 * 24 * 60

        def more(minutes: int) -> bool:
            then = self.plan_expiry(policy, after + minutes * minute)
            return (then.expire, then.drop_refs, then.partitions) != (begun.expire, begun.drop_refs, begun.partitions)

        if not more(span):
            return None
        return after + minute * bisect_left(range(1, span), True, key=more) + minute

    @property
    def trace(self) -> str:
        """The trace for a later call of `KnowsItsTrace`."""
        return self.head

    @abstractmethod
    async def references(self, expiring: ExpiryPlan, before: Self | None = None) -> References:
        """Everything that names files at this state. The snapshots in `expiring` give the expired side: read from this
        state if they are still in it (a dry run), otherwise from `before` (their expiry was committed)."""

    @abstractmethod
    async def expiring_files(self, expiring: ExpiryPlan, found: References, read: ReadSources) -> ExpiringFiles:
        """The files that `expiring` releases, by address and without a listing. `found` are the references for it. What
        cannot be read is left out until the next listing."""

    @abstractmethod
    async def other_tables_beside(self, paths: Sequence[str]) -> Sequence[Location]:
        """Directories beside or above these files in which a table of any format would keep metadata, if they are not
        empty and do not belong to this table."""

    @abstractmethod
    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        """Evidence among unreferenced listed paths that another table lives in these roots; None if there is none."""

    @abstractmethod
    async def explain(self, source: Location) -> tuple[str, ...]:
        """Sentences that name the snapshots and refs that lead to a source or a directly named path."""


_View = TypeVar("_View", bound=TableView)


def own_view(kind: type[_View], view: TableView) -> _View:
    """The view as the format's own class. A handle only gets views that a handle on the same table loaded."""
    if not isinstance(view, kind):
        raise TypeError(f"{view.ref} was loaded as {type(view).__name__}, not as {kind.__name__}")
    return view


class Table(Protocol):
    """One table, opened for reading and changing. What was read is a TableView."""

    ref: TableRef
    executable: bool
    """False if nothing proves which metadata is current (a bare Iceberg location): such a table can only be planned."""

    async def head(self) -> str:
        """The current head, as cheaply as the format allows."""

    def place(self) -> Location | None:
        """Where the table is, as far as this handle knows without any request; also if it cannot be loaded."""

    async def load(self) -> TableView:
        """Read the table now. Raises Refused, Unreadable or CatalogUnavailable, never returns half a table."""

    async def load_at(self, head: str, now_view: TableView) -> TableView | None:
        """The table as it was at an earlier head; None if that can no longer be read."""

    async def commit_expiry(
        self, view: TableView, policy: CleanupPolicy, now: datetime, fence: Fence
    ) -> tuple[TableView, ExpiryPlan]:
        """Commit an expiry plan; on a conflict it is retried from fresh metadata. Returns the table after the commit,
        and the plan that was really committed."""

    async def after_sweep(self, view: TableView, expiring: ExpiryPlan) -> None:
        """Work to do after the files were deleted (hints, health checks)."""


@runtime_checkable
class ClosesFirst(Protocol):
    """A table whose expired history is closed by deleting objects: plan rows of stages below 0 (Paimon). Delta deletes
    such objects too, but what its VACUUM takes does not depend on whether they are gone."""

    def closing_note(self, *, begun: bool = False) -> str:
        """Everything that `reopen` needs to know of what is about to be closed; empty if nothing is. With `begun`, only
        of what `sending` was called for."""
        ...

    def sending(self, paths: Sequence[str]) -> None:
        """Called before each request of a sweep with the objects that it deletes."""
        ...

    async def reopen(self, closing_note: str) -> None:
        """Called before a cycle if the one before began to close this and may have died before `closed`: if that has
        left nobody anything to open, what is needed is put back."""
        ...

    async def closed(self) -> None:
        """Called once in a sweep, after those objects were deleted and before any other is. An object that still exists
        keeps its files."""


@runtime_checkable
class HasReaderHints(Protocol):
    """A table with hints for readers where its history begins (Paimon)."""

    async def reopened(self) -> None:
        """Called when a restore has brought snapshots back: readers look only behind where history is said to begin."""


@runtime_checkable
class DetectsOtherCommits(Protocol):
    """A table whose location shows commits that its own head does not: of a second catalog (Iceberg)."""

    async def has_other_commits(self) -> bool:
        """Is there anything that `references` has not seen yet? Then it must be called again, even if the head is the
        same."""

    def looked_for_other_commits_last(self) -> bool:
        """Did the last call of `references` end with looking for them, and read nothing after that? Then asking
        at once again tells nothing more."""


@runtime_checkable
class KnowsItsTrace(Protocol):
    """A table whose head takes many requests (Paimon, Delta)."""

    async def is_still_at(self, trace: str) -> bool:
        """With at most three requests: is it certain that nothing was committed since the view with that trace that
        lets more expire? False proves nothing. Changes that matter only to a listing, such as a deleted tag, need not
        be seen."""


@runtime_checkable
class ReadsAnyway(Protocol):
    """A table that can be read although it may not be cleaned (Iceberg, Delta)."""

    def read_anyway(self) -> None:
        """From now on this handle also loads such a table, and executes nothing. Used to find out which files it uses
        in the places of other tables."""


@runtime_checkable
class MergesManifests(Protocol):
    """A table whose manifests can be merged by a commit of their own (Paimon)."""

    async def compact_manifests(self, now: datetime, fence: Fence) -> object | None:
        """Merge; None when there is nothing to merge."""


class TableFormat(Protocol):
    """One dataset's way to its tables: a catalog or a warehouse."""

    name: FormatName

    async def tables(self) -> Sequence[TableRef]:
        """Discover the tables. Never from a hard-coded list."""

    async def open(self, ref: TableRef) -> Table:
        """A handle on one table; reads nothing yet."""

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """Where every table of this dataset keeps files, for the overlap guard. Unreadable tables are left out."""


@runtime_checkable
class CatalogTables(Protocol):
    """A TableFormat whose tables are those of a catalog, which other datasets may use too."""

    @property
    def catalog_identity(self) -> Hashable:
        """Equal only for datasets that certainly use the same catalog. Never printed: it may contain secrets."""


@runtime_checkable
class ClaimsMore(Protocol):
    """A TableFormat that knows other places in use besides those of its tables, where no ghost can be."""

    async def claimed(self) -> Sequence[Location]:
        """Called after `locations`. Raises if the location of a registered entry is unknown."""
