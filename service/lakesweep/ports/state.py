"""What survives a restart: the records, and the StateStore port that keeps them.

Every method of the store is one short transaction. What grows with a table (plans, ledgers, audit records) is stored
elsewhere: here are only headers that say where."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

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
    fencing_token: int
    state: BatchState = BatchState.INTENT
    deleted: int = 0
    bytes: int = 0
    already_gone: int = 0
    failed: int = 0
    trash_bytes: int = 0
    versions_bytes: int = 0
    """The part of `bytes` that is still in the trash, or kept by the store."""


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
    """When a table is due next."""

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
    """A person's approval of a plan that exceeds a ceiling. It covers the rows with this digest and nothing else."""

    run_id: str
    table: str
    digest: str
    approved_by: str
    approved_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A person's order that no replica starts anything for a while."""

    scope: str
    """A target: `*`, `acme`, `acme/prod` or `acme/prod/orders`."""
    since: datetime
    by: str
    reason: str | None = None
    by_admin: bool = True
    """Made by somebody with access to all tenants. A tenant's token can neither lift nor replace it."""
    ends_at: datetime | None = None
    """When the hold ends by itself; None: when it is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message for the operator's webhook that is not delivered yet, or was given up after too long."""

    id: str
    table: str
    created_at: datetime
    next_try: datetime
    body: dict[str, Any]
    attempts: int = 0
    dead_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHeader:
    """Where a run's records are in its table's audit trail; the records are objects under `artifacts`."""

    run_id: str
    table: str
    first: int
    """Number of the run's first segment."""
    last: int
    """Number of its last segment so far; segments of other runs may be in between."""
    digest: str
    """Digest of the last segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What one finished run adds to a trend."""

    table: str
    started_at: datetime
    planned: bool
    """Whether it listed the table and made a plan; otherwise it says little about what there is to delete."""
    orphan_bytes: int
    deleted_bytes: int
    freed_bytes: int
    """Deleted bytes that are no longer stored; the others are in a trash, or versions in a bucket."""
    restored_bytes: int = 0
    """Of a run that brought back what another one took."""
    restored_files: int = 0
    deleted_files: int = 0
    expired_bytes: int = 0
    """The part of `orphan_bytes` that only expired snapshots reference."""


class StateStore(Protocol):
    """What survives a restart. Every method is one short transaction."""

    async def start_run(self, run: CleanupRun) -> None:
        """Record the start of a run."""

    async def update_run(self, run: CleanupRun) -> None:
        """Replace the document of a run."""

    async def get_run(self, run_id: str) -> run_document.Run | None:
        """A run as its JSON document (the shape of `run --json`)."""

    async def list_runs(
        self,
        *,
        table: str | None = None,
        tenants: Collection[str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[run_document.Run]:
        """Newest first; only those of a table, of some tenants, and older than the run `before`."""

    async def last_runs(self, tables: Collection[str]) -> dict[str, run_document.Run]:
        """The newest run of each of these tables, by table; one that never ran is left out."""

    async def last_planned(self, tenants: Collection[str] | None = None) -> dict[str, run_document.Run]:
        """By table, of some tenants or all: the newest run that listed the table and ended with a plan. A run whose
        process died does not count, because its document may lack the plan's numbers."""

    async def run_figures(
        self, since: datetime, tenants: Collection[str] | None = None, *, table: str | None = None
    ) -> list[RunFigures]:
        """The numbers of every run that began since then and has ended, oldest first; of one table, if it is named."""

    async def runs_beginning(self, prefix: str, limit: int = 10) -> list[run_document.Run]:
        """Runs whose id has this prefix, newest first."""

    async def open_runs(self, table: str) -> list[run_document.Run]:
        """Runs of a table that never finished."""

    async def close_run(self, document: run_document.Run) -> bool:
        """Finish a run that its own process could not. False, and nothing changes, if it has an outcome already."""

    async def forget_runs(self, before: datetime, limit: int) -> tuple[int, list[str]]:
        """Forget at most `limit` runs that finished before then, the oldest first, with their plans, journals and
        approvals. How many there were, and where the rows of their plans are."""

    async def save_plan(self, header: PlanHeader) -> None:
        """Record a plan; its rows are in a file."""

    async def get_plan(self, run_id: str) -> PlanHeader | None:
        """The plan of a run, if it made one."""

    async def begin_batch(self, record: BatchRecord) -> None:
        """Journal the intent. Raises LeaseLost if the table's lease carries a newer token."""

    async def finish_batch(self, record: BatchRecord) -> None:
        """Journal the outcome. Allowed even after the lease was lost: it records a fact."""

    async def journal(self, run_id: str) -> list[BatchRecord]:
        """A run's batches in order."""

    async def set_pending_expiry(self, table: str, head_before: str | None, run_id: str) -> None:
        """Record, before an expiry commit, the head it starts from; None clears it after the sweep."""

    async def pending_expiry(self, table: str) -> str | None:
        """The head before an expiry whose sweep has not finished yet."""

    async def acquire_lease(self, table: str, owner: str, ttl: timedelta) -> Lease | None:
        """A lease with a token greater than any before, or None while another owner holds it."""

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease:
        """Extend, or raise LeaseLost."""

    async def check_lease(self, lease: Lease) -> None:
        """Raise LeaseLost unless the lease is current and unexpired by the store's clock."""

    async def release_lease(self, lease: Lease) -> None:
        """Release the table at once."""

    async def set_due(self, due: DueTime) -> None:
        """Record when a table is due next."""

    async def get_due(self, table: str) -> DueTime | None:
        """When one table is due next, if it was ever seen."""

    async def due_times(self, *, until: datetime | None = None) -> list[DueTime]:
        """The due times of all tables ever seen, the soonest first; or only of those that are due by then."""

    async def set_ledger(self, header: LedgerHeader) -> None:
        """Record where a table's ledger is."""

    async def get_ledger(self, table: str) -> LedgerHeader | None:
        """Where a table's ledger is, if it has one."""

    async def add_approval(self, approval: Approval) -> None:
        """Record an approval; a new one of the same run replaces it."""

    async def approvals(self, table: str) -> list[Approval]:
        """The approvals of a table, newest first, including expired ones."""

    async def set_hold(self, hold: Hold) -> None:
        """Hold the scope until the hold is cleared or ends. If the scope is held already, neither hold is shortened,
        and an administrator's hold stays one: see `state.rules`."""

    async def clear_hold(self, scope: str, *, admin: bool = True) -> bool:
        """Clear a hold. Returns whether there was one. Only an administrator can clear an administrator's hold."""

    async def holds(self) -> list[Hold]:
        """The holds in force, by scope. A hold has ended only when both the store's clock and this machine's say so."""

    async def ended_holds(self) -> list[Hold]:
        """Holds that ended by themselves and were not lifted or renewed, by scope."""

    async def forget_ended_holds(self, before: datetime) -> int:
        """Forget those that ended before then. How many there were."""

    async def add_notice(self, notice: Notice) -> None:
        """Record a notice, unless one with the same id exists."""

    async def notices(self, *, dead: bool = False, limit: int = 500) -> list[Notice]:
        """Notices that are waiting, or those that were given up, oldest first."""

    async def claim_notice(self, notice: Notice, next_try: datetime) -> bool:
        """Claim the next delivery attempt. False if another replica has tried since the notice was read, or it is
        finished."""

    async def end_notice(self, notice_id: str, dead_at: datetime | None = None) -> None:
        """Finish a notice: a delivered one is deleted, one that is given up stays for a person to look at."""

    async def set_audit(self, header: AuditHeader) -> None:
        """Record where a run's audit records are. `last` never decreases, and `first` keeps its first value."""

    async def get_audit(self, run_id: str) -> AuditHeader | None:
        """Where a run's audit records are, if it has any."""

    async def audit_head(self, table: str) -> AuditHeader | None:
        """The header with the greatest `last` of a table."""

    async def audited_tables(self) -> list[str]:
        """Every table that has audit records, by name."""

    async def add_token(self, token: ApiToken) -> None:
        """Record a new token."""

    async def get_token(self, token_id: str) -> ApiToken | None:
        """One token, revoked or not."""

    async def list_tokens(self) -> list[ApiToken]:
        """All tokens ever made, oldest first."""

    async def revoke_token(self, token_id: str, when: datetime) -> bool:
        """Revoke a token; False if there is none with that id. The first revocation counts."""

    async def secret(self, name: str, new: str) -> str:
        """A secret of the installation, the same for all replicas of this store: `new` if there was none, otherwise the
        existing one. See `state.installation_key`."""

    async def remember(self, name: str, value: str) -> None:
        """Record a small note for all replicas of this store; it replaces an older one of the same name."""

    async def recall(self, name: str) -> str | None:
        """The newest note of that name."""

    async def server_time(self) -> datetime | None:
        """The database server's clock; None if the store uses this machine's clock."""

    async def ping(self) -> None:
        """Raise StateError if the store is unavailable."""

    async def aclose(self) -> None:
        """Close the connections."""
