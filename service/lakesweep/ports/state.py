"""What survives a restart: the records, and the StateStore port that keeps them.

Every method of the store is one short transaction. What grows with a table (plans, ledgers, audit records) is not
here: these are headers that say where it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from lakesweep.model import run_document
from lakesweep.model.access import ApiToken
from lakesweep.model.run import CleanupRun, Lease


class BatchState(StrEnum):
    """A journal entry is written before a batch (intent) and closed after it (done)."""

    INTENT = "intent"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """One batch in the journal: rows [first, first + count) of the plan."""

    run_id: str
    number: int
    first: int
    count: int
    state: BatchState
    fencing_token: int
    deleted: int = 0
    bytes: int = 0
    already_gone: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """A saved plan without its rows."""

    run_id: str
    table: str
    head: str
    digest: str
    rows_path: str
    candidates: int
    bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTime:
    """When a table is next looked at."""

    table: str
    next_due: datetime
    last_finished: datetime | None = None
    last_outcome: str | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHeader:
    """Where a table's record of first-seen-unreferenced files is; the rows are Parquet under `artifacts`."""

    table: str
    rows_path: str
    updated_at: datetime
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's word that a plan above its ceiling may go. It covers the rows with this digest and nothing else."""

    run_id: str
    table: str
    digest: str
    approved_by: str
    approved_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A person's word that nothing is started for a while, by any replica."""

    scope: str
    """A target: `*`, `acme`, `acme/prod` or `acme/prod/orders`."""
    since: datetime
    by: str
    reason: str | None = None
    by_admin: bool = True
    """Made by somebody who sees all tenants. A tenant's token can neither lift nor replace it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHeader:
    """Where a run's records stand in its table's audit trail; the records are objects under `artifacts`."""

    run_id: str
    table: str
    first: int
    """Number of the run's first segment."""
    last: int
    """Number of its last segment so far; others may stand in between."""
    digest: str
    """Of the last segment."""


class StateStore(Protocol):
    """What survives a restart. Every method is one short transaction."""

    async def start_run(self, run: CleanupRun) -> None:
        """Remember that a run began."""
        ...

    async def update_run(self, run: CleanupRun) -> None:
        """Replace what is known of a run."""
        ...

    async def get_run(self, run_id: str) -> run_document.Run | None:
        """A run as its JSON document (the shape of `run --json`)."""
        ...

    async def list_runs(
        self,
        *,
        table: str | None = None,
        tenants: Collection[str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[run_document.Run]:
        """Newest first; only those of a table, of some tenants, and older than the run `before`."""
        ...

    async def last_runs(self, tables: Collection[str]) -> dict[str, run_document.Run]:
        """The newest run of each of these tables, by table; one that never ran is left out."""
        ...

    async def open_runs(self, table: str) -> list[run_document.Run]:
        """Runs of a table that never finished."""
        ...

    async def close_run(self, document: run_document.Run) -> bool:
        """Finish a run that its own process could not. False, and nothing changes, if it has an outcome already."""
        ...

    async def forget_runs(self, before: datetime, limit: int) -> tuple[int, list[str]]:
        """Forget at most `limit` runs that finished before then, the oldest first, with their plans, journals and
        approvals. How many there were, and where the rows of their plans are."""
        ...

    async def save_plan(self, header: PlanHeader) -> None:
        """Remember a plan; its rows are a file."""
        ...

    async def get_plan(self, run_id: str) -> PlanHeader | None:
        """The plan a run made, if it came that far."""
        ...

    async def begin_batch(self, record: BatchRecord) -> None:
        """Journal the intent. Raises LeaseLost if the table's lease carries a newer token."""
        ...

    async def finish_batch(self, record: BatchRecord) -> None:
        """Journal the outcome. Allowed even after the lease was lost: it records a fact."""
        ...

    async def journal(self, run_id: str) -> list[BatchRecord]:
        """A run's batches in order."""
        ...

    async def set_pending_expiry(self, table: str, head_before: str | None, run_id: str) -> None:
        """Remember, before an expiry commit, the head it starts from; None clears it after the sweep."""
        ...

    async def pending_expiry(self, table: str) -> str | None:
        """The head before an expiry whose sweep has not finished yet."""
        ...

    async def acquire_lease(self, table: str, owner: str, ttl: timedelta) -> Lease | None:
        """A lease with a token greater than any before, or None while another owner holds it."""
        ...

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease:
        """Extend, or raise LeaseLost."""
        ...

    async def check_lease(self, lease: Lease) -> None:
        """Raise LeaseLost unless the lease is current and unexpired by the store's clock."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Give the table back at once."""
        ...

    async def set_due(self, due: DueTime) -> None:
        """Remember when a table is next looked at."""
        ...

    async def get_due(self, table: str) -> DueTime | None:
        """When one table is next looked at, if it was ever seen."""
        ...

    async def due_times(self, *, until: datetime | None = None) -> list[DueTime]:
        """Of every table ever seen, the soonest first; or only of those that are due then."""
        ...

    async def set_ledger(self, header: LedgerHeader) -> None:
        """Remember where a table's ledger is now."""
        ...

    async def get_ledger(self, table: str) -> LedgerHeader | None:
        """Where a table's ledger is, if it has one."""
        ...

    async def add_approval(self, approval: Approval) -> None:
        """Remember an approval; a run approved again has the newer one."""
        ...

    async def approvals(self, table: str) -> list[Approval]:
        """Of a table, newest first, those that have expired too."""
        ...

    async def set_hold(self, hold: Hold) -> None:
        """Start nothing inside the scope until it is cleared. An administrator's hold is replaced by another
        administrator's only: replaced by a tenant's it could be lifted by the tenant."""
        ...

    async def clear_hold(self, scope: str, *, admin: bool = True) -> bool:
        """Whether one was cleared. Who is no administrator clears no administrator's."""
        ...

    async def holds(self) -> list[Hold]:
        """All of them, by scope."""
        ...

    async def set_audit(self, header: AuditHeader) -> None:
        """Remember how far a run's audit records go. `last` never goes back, `first` is the first one given."""
        ...

    async def get_audit(self, run_id: str) -> AuditHeader | None:
        """Where a run's audit records are, if it has any."""
        ...

    async def audit_head(self, table: str) -> AuditHeader | None:
        """The header with the greatest `last` of a table."""
        ...

    async def audited_tables(self) -> list[str]:
        """Every table that has audit records, by name."""
        ...

    async def add_token(self, token: ApiToken) -> None:
        """Remember a new token."""
        ...

    async def get_token(self, token_id: str) -> ApiToken | None:
        """One token, revoked or not."""
        ...

    async def list_tokens(self) -> list[ApiToken]:
        """All tokens ever made, oldest first."""
        ...

    async def revoke_token(self, token_id: str, when: datetime) -> bool:
        """End a token now; False if there is none of that id. The first revocation stands."""
        ...

    async def secret(self, name: str, new: str) -> str:
        """A secret of the installation, the same for all that share this store: `new` if there was none, else the
        first one given. See `state.installation_key`."""
        ...

    async def remember(self, name: str, value: str) -> None:
        """A small note that all who share this store can recall; the newest of a name stands."""
        ...

    async def recall(self, name: str) -> str | None:
        """The newest note of that name."""
        ...

    async def server_time(self) -> datetime | None:
        """The database server's clock; None where the store has no other clock than this machine's."""
        ...

    async def ping(self) -> None:
        """Raise StateError if the store is out of reach."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
