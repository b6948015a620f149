"""One cycle over one table: its phase, its outcome, its counts. The same shape in database, API and log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lakesweep.model.files import DeletionReport, OrphanPlan, Tally, Verdict
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef


class Phase(StrEnum):
    """How far a run has come."""

    LOADING = "loading"
    EXPIRING = "expiring"
    DETECTING = "detecting"
    CHECKING = "checking"
    SWEEPING = "sweeping"
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

    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Which engine planned the table, and why that one."""

    kind: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LentFiles:
    """What one other table uses in this table's places. It stays for as long as that table names it."""

    table: str
    files: int
    first: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRun:
    """Everything there is to say about one cycle over one table."""

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
    """Committed ones only: a dry run expires nothing."""
    expired_partitions: tuple[str, ...] = ()
    plan: OrphanPlan | None = None
    engine: EngineChoice | None = None
    stream: str | None = None
    """Of a table that a stream writes to: why its unreferenced files stay longer than the grace period."""
    lent: tuple[LentFiles, ...] = ()
    """Files of this table that other tables use: a clone's, those of `add_files`, what a moved table left behind."""
    deletion: DeletionReport = field(default_factory=DeletionReport)
    spared: int = 0
    """Candidates taken out because something referenced them, or wrote them anew, after the plan was made."""

    @property
    def kept(self) -> dict[Verdict, Tally]:
        """Counts and bytes of everything that stays, by verdict."""
        if self.plan is None:
            return {}
        return {v: t for v, t in self.plan.verdicts.items() if v is not Verdict.ORPHAN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on one table until `expires_at`. The token only ever grows: an older one is void."""

    table: str
    owner: str
    token: int
    expires_at: datetime
