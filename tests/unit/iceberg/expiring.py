"""What the tests of the expiry commit share: a fence that may act, a policy, and a clock far ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.table.update import SetSnapshotRefUpdate
from tests.builders.iceberg import LakeTable, later

from lakesweep.formats.iceberg.table import IcebergTable
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.storage.local.store import LocalWriter

POLICY = CleanupPolicy()
OLD = {"days": 60}


class Fence:
    """Counts, and may act or fail like a lease that was lost."""

    def __init__(self, act: Callable[[int], None] = lambda _: None) -> None:
        self.checks = 0
        self._act = act

    async def check(self) -> None:
        self.checks += 1
        self._act(self.checks)


async def expire(handle: IcebergTable, fence: Fence | None = None, **ahead: float) -> ExpiryPlan:
    state = await handle.load()
    return (await handle.commit_expiry(state, POLICY, later(**(ahead or OLD)), fence or Fence()))[1]


def expired(plan: ExpiryPlan) -> set[int]:
    return {int(snapshot.id) for snapshot in plan.expire}


def prolong(table: LakeTable, ref: str, kind: str = "tag") -> None:
    """Give a ref another age, where it stands."""
    update = SetSnapshotRefUpdate(
        **{"ref-name": ref, "type": kind, "snapshot-id": table.head(ref)},
        max_ref_age_ms=10**12,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    table.lake.catalog.commit_table(table.refresh(), (), (update,))


class Interrupted(LocalWriter):
    """Lets another writer commit while we write our metadata file: after our look at the table, before our swap."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self._acts = [act]

    async def put(self, location: Location, data: bytes, **options: Any) -> Any:
        if self._acts:
            self._acts.pop()()
        return await super().put(location, data, **options)
