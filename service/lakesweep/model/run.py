"""One cycle over one table: its phase, its outcome, its counts. The same shape in database, API and log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lakesweep.model.files import DeletionReport, FailedDelete, OrphanPlan, Tally, Went
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.requests import Expense
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.store_rules import StoreRules, Versioning
from lakesweep.model.table import TableRef
from lakesweep.model.trash import RunTrash


class ListingMode(StrEnum):
    """Whether a cycle lists the whole table."""

    ALWAYS = "always"
    WHEN_DUE = "when_due"
    """Once in `listing_interval_hours`, if that is set; else always."""
    NEVER = "never"
    """No listing, unless the cycle is not safe without one."""


class Phase(StrEnum):
    """The phases of a run."""

    LOADING = "loading"
    EXPIRING = "expiring"
    DETECTING = "detecting"
    CHECKING = "checking"
    SWEEPING = "sweeping"
    RESTORING = "restoring"
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a run ended. A refusal is an outcome with a reason, never an empty success."""

    DONE = "done"
    DRY_RUN = "dry_run"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a guard said no: a stable code for machines, a sentence for people."""

    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Which engine planned the table, and why that one."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFiles:
    """Files in this table's places that another table uses. They are kept as long as that table references them."""

    table: str
    files: int
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What one run restored of the files that another run deleted."""

    of: str
    """The run that deleted them."""
    restored: Tally = field(default_factory=Tally)
    already_there: int = 0
    not_restorable: int = 0
    examples: tuple[FailedDelete, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRun:
    """Everything about one cycle over one table."""

    id: str
    table: TableRef
    location: str | None
    started_at: datetime
    finished_at: datetime | None = None
    phase: Phase = Phase.LOADING
    outcome: Outcome | None = None
    reason: str | None = None
    refusal: Refusal | None = None
    head: str | None = None
    expiry: ExpiryPlan | None = None
    expired_snapshots: tuple[str, ...] = ()
    """Only committed ones: a dry run expires nothing."""
    expired_partitions: tuple[str, ...] = ()
    plan: OrphanPlan | None = None
    engine: EngineChoice | None = None
    stream: str | None = None
    """For a table that a stream writes to: why its unreferenced files stay longer than the grace period."""
    shared_files: tuple[SharedFiles, ...] = ()
    """Files of this table that other tables use: through a clone, `add_files`, or a table that was moved."""
    deletion: DeletionReport = field(default_factory=DeletionReport)
    trash: RunTrash | None = None
    table_uuid: str | None = None
    """The identity of the table that it changed: at the time of a restore another table may have the same name."""
    store: StoreRules | None = None
    """What the store does with deleted objects. None: it was not queried."""
    to_trash: bool = False
    last_listed_at: datetime | None = None
    unchanged: bool = False
    """It ended after the head was read: nothing has changed, so there is nothing to find."""
    comes_of_age: datetime | None = None
    """When the next snapshot may expire, if nothing is committed meanwhile; None: unknown."""
    listed_because: str | None = None
    """Why it was listed although this run was meant to do without."""
    restored: Restored | None = None
    spared: int = 0
    """Candidates spared because they were referenced or rewritten after the plan was made."""
    planned: Expense | None = None
    """The estimated cost of a cycle that executes this plan. None without a plan."""
    sent: Expense = field(default_factory=Expense)

    @property
    def will_stay(self) -> Went:
        """Where the bytes of its candidates will be. A bucket that keeps versions acts as a trash."""
        versioning = self.store.versioning if self.store else Versioning.UNKNOWN
        if self.to_trash and versioning is not Versioning.ON:
            return Went.TRASH
        return Went.VERSIONS if self.store and self.store.keeps_versions else Went.FREED


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on one table until `expires_at`. Tokens only grow: a lease with an older token is void."""

    table: str
    owner: str
    token: int
    expires_at: datetime
