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
class Everything:
    """List all objects below the table's roots, now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """An existing file list that is read instead of listing, and how old it may be. Objects that it does not contain
    are never candidates."""

    address: Location
    """A manifest of S3 Inventory, a Parquet file, or a folder with either below it."""
    not_before: datetime
    """A list made before this is refused."""
    not_after: datetime
    """A list made after this has a wrong clock, so its age is unknown: refused as well."""
    asked: tuple[str, ...] = ()
    """Objects to check one by one in addition: otherwise a snapshot that is newer than the list would stay, and so
    would its files."""


LookAt = Everything | Inventory | Shortlist
"""Which objects a plan looks at. All three become one listing, which knows how old it is (`OrphanPlan.as_of`)."""


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
    look_at: LookAt = Everything()
    report_step: Callable[[str], None] = lambda _: None
    """Called with the current step, in one or two words, for a progress line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """The result of `mark` after the listing: the state that was read, and its references."""

    state: TableView
    references: References


class Engine(Protocol):
    """Finds orphans. Every engine gives the same plan, to the last file, for the same table."""

    name: str

    async def find_orphans(self, job: OrphanJob) -> OrphanPlan:
        """List, then mark, then judge."""

    def read_references(
        self, sources: Sequence[ReferenceSource]
    ) -> AsyncIterator[tuple[ReferenceSource, pa.RecordBatch]]:
        """Decode some sources now, for revalidation and for explain. Raises Unreadable on a retained one."""

    async def aclose(self) -> None:
        """Stop pools and sessions."""


ChooseEngine = Callable[[TableState], Awaitable[tuple[Engine, EngineChoice]]]
"""The engine that plans this table, and why it was chosen."""
