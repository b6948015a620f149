"""An Iceberg table as one metadata file describes it: it plans its expiry and names what refers to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

import structlog

from lakesweep.formats import markers, reads, streams
from lakesweep.formats.iceberg import foreign_tables, layout, references, retention
from lakesweep.formats.iceberg.catalog import Pointer
from lakesweep.formats.iceberg.metadata import TableMetadata
from lakesweep.formats.iceberg.other_histories import KEPT_FOR, Listed
from lakesweep.model.errors import CommitConflict, NotFound, Refused, Unreadable
from lakesweep.model.files import METADATA_SHOWN
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot
from lakesweep.ports.references import References
from lakesweep.ports.table import ExpiringFiles, ReadSources, TableView

if TYPE_CHECKING:
    from lakesweep.formats.iceberg.table import IcebergTable

log = structlog.get_logger()

_BETWEEN_RUNS = timedelta(days=1)
"""A file may come right after a run, and the clocks of store and service may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergState:
    """What was read of the table, before anything is made of it."""

    metadata: TableMetadata
    pointer: Pointer = field(repr=False)
    no_expiry: str | None = None
    """Why snapshots of this table cannot be expired through its catalog; None when they can."""
    pending: str | None = None
    """A stream that has left manifests which are not committed."""
    moved_from: str | None = None
    """A file that shows that the table was elsewhere before, if there is one."""
    listed: Listed = field(default_factory=dict, repr=False, compare=False)
    """Metadata files that were seen by this very load. They are not listed again for its references: what came
    since is new to every sweep, which looks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergView(TableView):
    """One metadata file of an open table."""

    native: IcebergState
    table: IcebergTable = field(repr=False, compare=False)
    """Reads for the view, and knows what this run has committed away."""

    def plan_expiry(self, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
        """Iceberg's own rules; nothing at all where the catalog could not commit it."""
        self.table.planned_by = policy
        plan = retention.plan(self.native.metadata, policy, now)
        if self.native.no_expiry is None or plan.empty:
            return plan
        waiting = tuple(KeptSnapshot(id=snapshot.id, why="its expiry is skipped") for snapshot in plan.expire)
        return ExpiryPlan(head=plan.head, keep=plan.keep + waiting, skipped=self.native.no_expiry)

    async def references(self, expiring: ExpiryPlan, before: Self | None = None) -> References:
        """Raises CommitConflict when the table has moved on and took a manifest list along: load and ask again."""
        table, current = self.table, self.native.metadata
        earlier = await table.verified(current, before.native.metadata) if before else None
        going = ids(expiring) - table.committed_away
        try:
            found = await references.collect(table.lists, current, going, earlier)
            found = replace(found, tolerated=(*found.tolerated, *await table.pending.named()))
            return await table.histories.keep(found, current, self.roots, self.native.listed, self._longest_wait())
        except NotFound as exc:
            if await table.head() != self.head:
                raise CommitConflict(f"{self.ref} received a commit while its manifest lists were read") from exc
            raise Unreadable(exc.address, "a retained snapshot names it, but storage has no such object") from exc

    def _longest_wait(self) -> timedelta:
        """How long an unreferenced metadata file may stay by its age. None waits where nothing was planned."""
        policy = self.table.planned_by
        if policy is None:
            return timedelta(0)
        grace = max(KEPT_FOR, policy.grace_period, policy.stream_state if self.stream else timedelta(0))
        return grace + policy.confirm_after + _BETWEEN_RUNS

    async def expiring_files(self, expiring: ExpiryPlan, found: References, read: ReadSources) -> ExpiringFiles:  # noqa: ARG002  # the port's
        """Manifests say what they name and how long it is, so that storage is not queried for it."""
        return await references.expiring_files(self.table.lists, found, read)

    async def other_tables_beside(self, paths: Sequence[str]) -> Sequence[Location]:
        own = layout.metadata_directory(self.native.metadata).as_directory()
        storage, found = self.table.storage, []
        for root in self.roots:
            known = {own.raw.removeprefix(root.as_directory().raw).rstrip("/")}
            found += await markers.beside(storage, root, paths, without=known)
        return found

    async def foreign_owner(self, unreferenced: Sequence[str]) -> str | None:
        """Another table's metadata among the unreferenced files. A link would not be among them."""
        table, beside_head = self.table, Location.parse(self.head.rpartition("/")[0])
        await reads.refuse_irregular(table.storage, *{beside_head, self.location.join("metadata")})
        own, histories = self.native.metadata, table.histories
        # What other histories keep counts as referenced by now; it is checked nevertheless.
        unreferenced = [*unreferenced, *(path for path in histories.found if path not in set(unreferenced))]
        whole = await histories.listed(own) if len(unreferenced) >= METADATA_SHOWN else unreferenced
        evidence = await foreign_tables.find(table.storage, own, unreferenced, self.roots)
        histories.leave_to_check(whole, own)
        if evidence and await table.head() != self.head:
            # It may be a commit that was under way when the table was read.
            now = await table.load()
            return await foreign_tables.find(table.storage, now.native.metadata, unreferenced, now.roots)
        return evidence

    async def explain(self, source: Location) -> tuple[str, ...]:
        held = await references.explain(self.table.lists, self.native.metadata, source)
        return (*held, *await self.table.pending.explain(source), *self.table.histories.explain(source))


def build(table: IcebergTable, native: IcebergState, tenant_root: Location) -> IcebergView:
    """The view, or Refused if the table lies outside its tenant's root."""
    metadata = native.metadata
    location = Location.parse(metadata.location)
    roots, left_out = layout.roots_of(metadata, tenant_root)
    if metadata.location in left_out:
        raise Refused(
            RefusalCode.OUTSIDE_ROOT,
            f"the table is at {location}, outside the tenant's root {tenant_root}: nothing outside is ever touched",
        )
    if left_out:
        log.warning("roots_outside_tenant", table=table.ref.label, left_out=left_out)
    placed = "a Flink job" if metadata.properties.get(streams.FLINK_MANIFESTS) else None
    return IcebergView(
        ref=table.ref,
        head=metadata.address,
        table_uuid=metadata.uuid,
        location=location,
        roots=roots,
        snapshots=retention.describe(metadata, metadata.snapshots),
        layout=layout.layout_of(metadata, roots),
        stream=retention.stream_writer(metadata.snapshots) or native.pending or placed,
        moved_from=native.moved_from,
        estimated_files=_estimated_files(metadata),
        native=native,
        table=table,
    )


def ids(plan: ExpiryPlan) -> frozenset[int]:
    return frozenset(int(snapshot.id) for snapshot in plan.expire)


def _estimated_files(metadata: TableMetadata) -> int | None:
    current = metadata.snapshot(metadata.current_snapshot_id)
    if current is None:
        return 0 if not metadata.snapshots else None
    counts = [current.summary.get(name, "") for name in ("total-data-files", "total-delete-files")]
    return sum(int(count) for count in counts if count.isdigit()) if counts[0].isdigit() else None
