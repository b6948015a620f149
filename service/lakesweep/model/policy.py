"""What may be cleaned and how carefully. An unsafe policy cannot be constructed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

GRACE_FLOOR = timedelta(hours=24)
"""Below this an unreferenced file may belong to a writer that has not committed yet."""


_SHORT_GRACE = (
    "grace_period_hours is below 24: set allow_short_grace = true only where no writer "
    "can hold uncommitted files for that long"
)


class CadenceKind(StrEnum):
    """What decides when the service runs a table."""

    FIXED = "fixed"
    """`cleanup_interval_hours` or `cron`."""
    ADAPTIVE = "adaptive"
    """What its last runs found and cost."""


class OnMissing(StrEnum):
    """What to do about a table with live files missing from storage."""

    REFUSE = "refuse"
    REPORT = "report"


class Deletion(StrEnum):
    """What happens to a file that may be deleted."""

    DELETE = "delete"
    TRASH = "trash"
    """It is moved to the trash, from which `restore` restores it until `trash_hours` are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """A plan above these limits waits for a person. A normal cycle stays far below."""

    files: int = 1_000_000
    bytes: int = 10 * 1024**4
    share: float = 0.5
    share_min_files: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPolicy:
    """The rules for one table after the cascade global < tenant < dataset < table."""

    dry_run: bool = True
    grace_period: timedelta = GRACE_FLOOR
    allow_short_grace: bool = False
    max_snapshot_age: timedelta = timedelta(hours=720)
    min_snapshots_to_keep: int = 1
    confirm_after: timedelta = timedelta(0)
    stream_state: timedelta = timedelta(hours=168)
    """For this long a stopped stream may come back for its newest commit and for files that only it knows."""
    listing_interval: timedelta | None = None
    """How long one listing of the whole table is enough for the following cycles; None: every cycle lists."""
    on_missing: OnMissing = OnMissing.REFUSE
    max_clock_skew: timedelta = timedelta(minutes=15)
    batch_size: int = 1000
    max_concurrent_deletions: int = 10
    deletion: Deletion = Deletion.DELETE
    ceilings: Ceilings = field(default_factory=Ceilings)

    def __post_init__(self) -> None:
        faults = [
            fault
            for bad, fault in (
                (self.grace_period < GRACE_FLOOR and not self.allow_short_grace, _SHORT_GRACE),
                (self.grace_period < timedelta(0), "grace_period_hours must not be negative"),
                (self.max_snapshot_age < timedelta(0), "max_snapshot_age_hours must not be negative"),
                (self.min_snapshots_to_keep < 1, "min_snapshots_to_keep must be at least 1"),
                (self.confirm_after < timedelta(0), "confirm_after_hours must not be negative"),
                (self.stream_state < timedelta(0), "stream_state_hours must not be negative"),
                (not 1 <= self.batch_size <= 10_000, "batch_size must be between 1 and 10000"),
                (self.max_concurrent_deletions < 1, "max_concurrent_deletions must be at least 1"),
                (not 0 < self.ceilings.share <= 1, "ceilings.share must be above 0 and at most 1"),
            )
            if bad
        ]
        if faults:
            raise ValueError("; ".join(faults))
