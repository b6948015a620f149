"""Commit an expiry so that no ref is ever lost, and know afterwards what really happened. No file is deleted here.

Each attempt is planned from freshly loaded metadata, since the cycle's own plan may be hours old, and demands that
every ref known to the plan still points where it did. A client-side catalog also validates our own requirement against
the very metadata that it swaps out, so a ref created or prolonged meanwhile stops the commit. A REST server cannot be
asked for that; there the commit is looked at afterwards. An expiry without effect is never committed."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from pyiceberg import exceptions
from pyiceberg.table import update
from pyiceberg.table.metadata import TableMetadata as PyIcebergMetadata
from pyiceberg.table.refs import SnapshotRef

from lakesweep.formats.iceberg import ref_history
from lakesweep.formats.iceberg.catalog import CommitStyle
from lakesweep.formats.iceberg.metadata import RETENTION_PROPERTIES, Ref, StatisticsEntry, TableMetadata
from lakesweep.formats.iceberg.metadata_source import CatalogSource
from lakesweep.formats.iceberg.view import IcebergView
from lakesweep.model import errors
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.run import Fence
from lakesweep.retry import Backoff

RETRIES = 4
"""As Iceberg's own `commit.retry.num-retries`."""

_FINAL = (
    exceptions.BadRequestError,
    exceptions.ForbiddenError,
    exceptions.UnauthorizedError,
    exceptions.TooManyRequestsError,
)
"""The catalog refused: nothing was committed."""


_Ages = tuple[int | None, int | None, int | None]


class PlanHolds(update.ValidatableTableRequirement):
    """Ours, for client-side catalogs only: refs and what is said of retention are exactly those planned with, and what
    goes is still there."""

    type: str = "lakesweep-plan-holds"
    refs: dict[str, tuple[int, _Ages]]
    retention: dict[str, str]
    removed: frozenset[int]

    def validate(self, base_metadata: PyIcebergMetadata | None) -> None:  # type: ignore[override]  # pyiceberg's name
        """Raise CommitFailedException unless the metadata that will be swapped out still fits the plan."""
        if base_metadata is None:
            raise exceptions.CommitFailedException("Requirement failed: current table metadata is missing")
        found = {name: (ref.snapshot_id, _ages(ref)) for name, ref in base_metadata.refs.items()}
        if found != self.refs:
            changed = sorted(name for name in found.keys() | self.refs.keys() if found.get(name) != self.refs.get(name))
            raise exceptions.CommitFailedException(f"Requirement failed: refs have changed: {', '.join(changed)}")
        if _retention(base_metadata.properties) != self.retention:
            raise exceptions.CommitFailedException("Requirement failed: the table's retention has changed")
        if not self.removed <= {snapshot.snapshot_id for snapshot in base_metadata.snapshots}:
            raise exceptions.CommitFailedException("Requirement failed: a snapshot to be removed is gone already")


@dataclass(frozen=True, kw_only=True)
class ExpiryCommit:
    """One table's way to commit. `load` reads it anew, `plan` is the pure decision, `read` one metadata file."""

    source: CatalogSource
    load: Callable[[], Awaitable[IcebergView]]
    plan: Callable[[IcebergView], ExpiryPlan]
    read: ref_history.ReadMetadata
    fence: Fence
    known: Callable[[], tuple[str, bytes]] = lambda: ("", b"")
    """The address and the contents of a metadata file that need not be read again, as its name is given only once."""

    async def run(self, state: IcebergView) -> tuple[IcebergView, ExpiryPlan]:
        """The state after the commit and what was committed; an empty plan commits nothing."""
        planned = state.table_uuid
        trouble: errors.LakesweepError | None = None
        sent: tuple[IcebergView, ExpiryPlan] | None = None
        tries = Backoff(RETRIES + 1)
        for attempt in range(tries.attempts):
            if attempt:
                await tries.pause(attempt)
            state = await self.load()
            if planned is not None and state.table_uuid != planned:
                raise errors.Refused(
                    RefusalCode.TABLE_CHANGED, "the table was replaced by another one since the plan was made"
                )
            if sent is not None and _happened(sent[1], state):
                # An answer was lost, and only now can it be seen that the commit arrived.
                return await self._confirmed(*sent, state)
            plan = self.plan(state)
            if plan.empty:
                return state, plan
            await self.fence.check()
            trouble = await self._attempt(state, plan)
            if isinstance(trouble, errors.CommitConflict):
                continue
            sent, after = (state, plan), await self.load()
            if _happened(plan, after):
                return await self._confirmed(state, plan, after)
        raise trouble or errors.CommitConflict("the expiry was committed, but its snapshots are still in the table")

    async def _confirmed(
        self, before: IcebergView, plan: ExpiryPlan, after: IcebergView
    ) -> tuple[IcebergView, ExpiryPlan]:
        await self._verify(before.native.metadata, plan, after.native.metadata)

        def expires(metadata: TableMetadata, _: int | None) -> frozenset[int]:
            native = replace(before.native, metadata=metadata)
            return frozenset(int(one.id) for one in self.plan(replace(before, native=native)).expire)

        await ref_history.refuse_overtaken(after.native.metadata, before.native.metadata, expires, self.read)
        return after, plan

    async def _attempt(self, state: IcebergView, plan: ExpiryPlan) -> errors.LakesweepError | None:
        """None when the catalog says that it is done, else what to make of its answer."""
        native, catalog = state.native, self.source.catalog
        style = await catalog.commit_style()
        try:
            await catalog.commit(
                self.source.identifier,
                native.pointer,
                requirements(native.metadata, plan, style),
                updates(native.metadata, plan),
                state.roots,
                known=self.known(),
            )
        except errors.Refused:  # it wanted to write outside of the table: nothing was committed
            raise
        except exceptions.CommitFailedException as exc:
            return errors.CommitConflict(f"another commit came first: {catalog.explain(exc)}")
        except exceptions.NoSuchTableError as exc:
            raise errors.UnknownTable(f"{catalog} has no table {'.'.join(self.source.identifier)} any more") from exc
        except _FINAL as exc:
            raise errors.CatalogUnavailable(f"{catalog} refused the expiry: {catalog.explain(exc)}") from exc
        except Exception as exc:  # noqa: BLE001 - time-outs, 5xx, broken answers: only reading the table can decide
            return errors.CommitUnknown(f"{catalog} gave no clear answer to the expiry commit: {catalog.explain(exc)}")
        return None

    async def _verify(self, before: TableMetadata, plan: ExpiryPlan, after: TableMetadata) -> None:
        """Nothing of what the plan keeps may be gone by this commit, nor a ref that it did not know. What is said after
        our look at the table and before the commit can only be heard afterwards where a server commits."""
        knowingly = {ref for ref in before.refs if ref.name in plan.drop_refs}
        complete = await ref_history.verify(after, before, knowingly, self.read)
        if await self.source.catalog.commit_style() is not CommitStyle.SERVER:
            return
        if _is_retention_changed(before, after):
            raise errors.Refused(
                RefusalCode.REF_UNVERIFIED,
                "the table's retention was changed while snapshots were being expired by the old one; no file was "
                f"deleted: if a snapshot should have stayed, restore it from {before.address}",
            )
        if not complete:
            raise errors.Refused(
                RefusalCode.REF_UNVERIFIED,
                "snapshots were expired, but the metadata log does not reach back to the state before, so nothing "
                "shows whether a branch or tag was created on one of them meanwhile; no file was deleted",
            )


def requirements(metadata: TableMetadata, plan: ExpiryPlan, style: CommitStyle) -> tuple[update.TableRequirement, ...]:
    demands: list[update.TableRequirement] = []
    if metadata.uuid is not None:
        demands.append(update.AssertTableUUID(uuid=uuid.UUID(metadata.uuid)))
    demands += [update.AssertRefSnapshotId(ref=ref.name, **{"snapshot-id": ref.snapshot_id}) for ref in metadata.refs]
    if style is CommitStyle.CLIENT:
        holds = PlanHolds(
            refs={ref.name: (ref.snapshot_id, _ages(ref)) for ref in metadata.refs},
            retention=_retention(metadata.properties),
            removed=frozenset(int(snapshot.id) for snapshot in plan.expire),
        )
        demands.append(holds)  # type: ignore[arg-type]  # never serialised
    return tuple(demands)


def updates(metadata: TableMetadata, plan: ExpiryPlan) -> tuple[update.TableUpdate, ...]:
    """Refs first, since a ref without its snapshot cannot be named any more; snapshots last."""
    going = {int(snapshot.id) for snapshot in plan.expire}
    changes: list[update.TableUpdate] = [
        update.RemoveSnapshotRefUpdate(**{"ref-name": name}) for name in plan.drop_refs
    ]
    changes += [update.RemoveStatisticsUpdate(**{"snapshot-id": one}) for one in _described(metadata.statistics, going)]
    changes += [
        update.RemovePartitionStatisticsUpdate(**{"snapshot-id": one})
        for one in _described(metadata.partition_statistics, going)
    ]
    if going:
        changes.append(update.RemoveSnapshotsUpdate(**{"snapshot-ids": sorted(going)}))
    return tuple(changes)


def _ages(ref: Ref | SnapshotRef) -> _Ages:
    return ref.min_snapshots_to_keep, ref.max_snapshot_age_ms, ref.max_ref_age_ms


def _retention(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name.startswith(RETENTION_PROPERTIES)}


def _is_retention_changed(before: TableMetadata, after: TableMetadata) -> bool:
    ages = {ref.name: _ages(ref) for ref in before.refs}
    return _retention(before.properties) != _retention(after.properties) or any(
        ages.get(ref.name, _ages(ref)) != _ages(ref) for ref in after.refs
    )


def _described(statistics: tuple[StatisticsEntry, ...], snapshots: set[int]) -> list[int]:
    return sorted({entry.snapshot_id for entry in statistics} & snapshots)


def _happened(plan: ExpiryPlan, after: IcebergView) -> bool:
    metadata = after.native.metadata
    left = {str(entry.id) for entry in metadata.snapshots} & {snapshot.id for snapshot in plan.expire}
    return not left and not {ref.name for ref in metadata.refs} & set(plan.drop_refs)
