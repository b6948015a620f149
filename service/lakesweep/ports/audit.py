"""Where one run records what it changes. `audit.trail` implements it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.state import BatchRecord


class Audit(Protocol):
    """Where one run records what it does. Every method raises AuditFailed if the record is not safely stored."""

    async def begin(self, run: CleanupRun) -> None:
        """The plan is checked and about to be executed."""

    async def expiring(self, plan: ExpiryPlan) -> None:
        """An expiry is about to be committed."""

    async def expired(self, plan: ExpiryPlan) -> None:
        """An expiry was committed."""

    async def deleting(self, batch: BatchRecord, going: pa.RecordBatch, spared: pa.RecordBatch) -> None:
        """A batch is about to be deleted, except the spared rows. Both are rows of a plan."""

    async def deleted(self, batch: BatchRecord, results: pa.RecordBatch) -> None:
        """The results of a batch: rows of DELETE_RESULTS_SCHEMA."""

    async def restoring(self, batch: BatchRecord, rows: pa.RecordBatch) -> None:
        """A batch is about to be restored: rows of RESTORE_RESULTS_SCHEMA, without outcomes."""

    async def restored(self, batch: BatchRecord, rows: pa.RecordBatch) -> None:
        """The results of that batch."""

    async def end(self, run: CleanupRun) -> None:
        """The run has ended. A run that was refused before it began anything is recorded too."""


DELETE_RESULTS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),  # a `DeleteStatus`
        pa.field("why", pa.string()),  # what the store said
        pa.field("went", pa.string()),  # a `Went`, of what was deleted
        pa.field("delete_marker", pa.string()),  # its version id, where the store named one
    ]
)
"""Results of deleting files."""

RESTORE_RESULTS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),  # restored, already_there, not_restored
        pa.field("why", pa.string()),
    ]
)
"""Results of restoring files."""
