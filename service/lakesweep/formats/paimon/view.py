"""A Paimon table as its log describes it: it plans what expires, and names what refers to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

from lakesweep.formats import markers
from lakesweep.formats.paimon import expiring_files, retention
from lakesweep.formats.paimon.layout import PaimonLayout
from lakesweep.formats.paimon.lists import Vanished
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.formats.paimon.state import PaimonState, retained_roots
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.references import References
from lakesweep.ports.table import ExpiringFiles, ReadSources, TableView

if TYPE_CHECKING:
    from lakesweep.formats.paimon.table import PaimonTable

LOOKS = 5
"""How often a table that somebody else is expiring is looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaimonView(TableView):
    """One state of an open table."""

    layout: PaimonLayout
    native: PaimonState
    table: PaimonTable = field(repr=False, compare=False)
    """Reads for the view, and remembers for one cycle what was offered and released."""

    @property
    def trace(self) -> str:
        return self.native.log.trace

    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        return retention.plan_expiry(self.native, self.head, policy, now)

    async def references(self, expiring: ExpiryPlan, before: Self | None = None) -> References:  # noqa: ARG002 - see PaimonTable.load_at
        """What names files. If a snapshot goes while it is being read, the table is looked at again."""
        table, head, native, looks = self.table, self.head, self.native, 0
        while True:
            looks += 1
            going = table.released.still_going(retention.resolve(native, expiring))
            try:
                found = await table.reference_reader.collect(native, going, decoupled=native.options.decoupled)
                table.offered = frozenset(snapshot.key for snapshot in going)
                table.emptied = table.emptied or await self._directories(native, going)
            except Vanished:
                fresh = await table.load()
                if fresh.head == head or looks == LOOKS:
                    raise
                head, native = fresh.head, fresh.native
            else:
                return found

    async def expiring_files(self, expiring: ExpiryPlan, found: References, read: ReadSources) -> ExpiringFiles:  # noqa: ARG002  # the port's
        """Manifests say in which partition and bucket a file is. Each is looked up in that place."""
        going = self.table.released.still_going(retention.resolve(self.native, expiring))
        return await expiring_files.collect(self.table, self.native, going, found)

    async def other_tables_beside(self, paths: Sequence[str]) -> Sequence[Location]:
        own = frozenset((markers.PAIMON_SCHEMA,))
        storage = self.table.storage
        return [place for root in self.roots for place in await markers.beside(storage, root, paths, without=own)]

    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        """Places outside of Paimon's own directories are reserved, so another table inside is never touched, unless its
        home is a partition or an external path: then its buckets are where ours would be."""
        other = next(iter(unreferenced), None)
        return other and f"{other} belongs to another table, among the files of this one: move one of them"

    async def explain(self, source: Location) -> tuple[str, ...]:
        roots = retained_roots(self.native, (), decoupled=self.native.options.decoupled)
        leads = self.table.reference_reader.leads
        return tuple([f"{root.snapshot.label} leads to it" for root in roots if await leads(root, source)])

    async def _directories(self, native: PaimonState, going: Sequence[PaimonSnapshot]) -> tuple[str, ...]:
        if not native.options.clean_empty_directories:
            return ()
        metas = await self.table.reference_reader.going_manifests(going)
        return await expiring_files.directories_of(self.table.files, self.table.lists, native, metas)
