"""Find the orphans of one table: list, then mark, then judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.run import EngineChoice
from lakesweep.model.table import TableRef
from lakesweep.ports.references import References, ReferenceSource
from lakesweep.ports.table import Layout, Shortlist, TableState, TableView


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

    state: TableView
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


class Engines(Protocol):
    """The engines there are."""

    def choose(self, state: TableState) -> tuple[Engine, EngineChoice]:
        """The one that plans this table, and why it was chosen."""
        ...
