"""`[orphan_cleanup]`: how carefully a table is cleaned, and the same keys as a partial override of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from lakesweep.model.policy import CadenceKind, Ceilings, Deletion, OnMissing
from lakesweep.settings.values import Address, Count, Cron, Group, Hours, Interval, Minutes, Share, override_of

_CEILINGS = Ceilings()
BatchSize = Annotated[Count, Field(le=10_000)]


class CeilingSettings(Group):
    """`[orphan_cleanup.ceilings]`: a plan above any of these is saved and refused until a person approves it."""

    files: Count = _CEILINGS.files
    """Files in one plan. A table that really loses more at once is rare enough to look at."""
    bytes: Count = _CEILINGS.bytes
    """Bytes in one plan, 10 TiB by default."""
    share: Share = _CEILINGS.share
    """Share of all listed files, above 0 and at most 1. A plan that empties half a table is more often a
    misread table than a dirty one."""
    share_min_files: Count = _CEILINGS.share_min_files
    """Number of listed files from which `share` applies; in a small table a large share is normal."""


class OrphanCleanupSettings(Group):
    """`[orphan_cleanup]`: the rules for every table that no tenant, dataset or table overrides."""

    enabled: bool = False
    """Whether the service works on its own schedule. `plan` and `run` on the command line work either way."""
    dry_run: bool = True
    """Find and report, change nothing. True at any level (here, tenant, dataset, table) wins; only `run --execute`
    on the command line overrides the one given here."""
    grace_period_hours: Hours = 24.0
    """Hours an unreferenced file is kept after its last change: longer than the slowest writer takes from its
    first file to its commit. Below 24 only with `allow_short_grace`."""
    allow_short_grace: bool = False
    """Accept a `grace_period_hours` or `ghost_grace_hours` below 24. Only where no writer can hold uncommitted
    files for that long."""
    ghost_grace_hours: Hours = 720.0
    """Hours for which the directory of a former table that nobody claims stays complete after the last change of any of
    its files and after the last run on a table there, 30 days by default. Of several levels the longest applies,
    including that of any dataset of the tenant. Below 24 only with `allow_short_grace`. Ghosts are deleted only by a
    plan that a person approved: see `lakesweep ghosts --plan`."""
    cleanup_interval_hours: Interval = 24.0
    """Hours between two cycles of one table. After a failure the next try comes sooner."""
    cron: Cron | None = None
    """When a table's cycles begin, in the five fields of cron, in UTC: "30 2 * * *" is half past two each night. It
    replaces `cleanup_interval_hours` of the same or a wider level."""
    cadence: CadenceKind = CadenceKind.FIXED
    """`fixed` follows `cleanup_interval_hours` or `cron`. `adaptive` lets the service choose when to expire and when to
    list, from what the last runs of a table found and cost, so that the bytes waiting to be deleted stay near
    `waste_budget` with as few requests as possible."""
    min_interval_hours: Interval = 1.0
    """Hours that an adaptive cadence waits at least between two cycles of one table."""
    max_interval_hours: Interval = 168.0
    """Hours that an adaptive cadence waits at most, for a cycle and for a listing; not less than
    `min_interval_hours`."""
    waste_budget: Share = 0.01
    """Share of a table's live bytes that may wait to be deleted, for an adaptive cadence."""
    max_snapshot_age_hours: Hours = 720.0
    """Hours after which a snapshot may be expired, 30 days by default. The table's own retention properties win, and
    every snapshot that stays protects all its files, whatever its age."""
    min_snapshots_to_keep: Count = 1
    """Snapshots of each branch that stay, however old they are."""
    batch_size: BatchSize = 1000
    """Files per deletion batch, at most 10000. References are checked again before each batch."""
    max_concurrent_deletions: Count = 10
    """Deletion requests under way at one time, per table. Raise it for a store that can take more."""
    revalidate_before_delete: bool = True
    """Check references again before each batch. Always done before a real delete, so false is accepted only
    together with `dry_run = true`."""
    confirm_after_hours: Hours = 0.0
    """Hours for which a file must have been seen unreferenced, from the cycle that first saw it, before it may be
    deleted. 0 deletes in the cycle that finds it; 24 with a daily cycle needs two sightings. Files of expired
    snapshots wait as well, from the cycle that expired them, so that readers of those snapshots can finish."""
    stream_state_hours: Hours = 168.0
    """Hours for which a stream that stopped (Flink, Kafka Connect, Spark) finds what it needs to resume: the newest
    snapshot that it committed stays, and so does every unreferenced file of a table whose history shows a stream.
    Longer than a job is ever down. Tables without streams use `grace_period_hours`; if that is longer, it applies."""
    listing_interval_hours: Interval | None = None
    """Hours between two listings of a whole table by the service. Cycles in between expire snapshots and delete the
    files that only those referenced, without listing anything; unreferenced files, missing files and other tables'
    metadata wait for the next listing. If not set, every cycle lists. `plan` and `run` list unless given
    `--no-listing`."""
    approval_hours: Interval = 24.0
    """Hours for which an approval of a plan above its ceilings is valid."""
    on_missing: OnMissing = OnMissing.REFUSE
    """What to do when live files are missing from storage: `refuse` to clean the table, or `report` them and clean
    anyway."""
    max_clock_skew_minutes: Minutes = 15.0
    """Minutes by which this machine's clock and the store's may differ. Beyond it the ages of files mean nothing
    and the table is refused."""
    deletion: Deletion = Deletion.DELETE
    """What happens to a file that may be deleted: `delete` deletes it, `trash` moves it to the trash, from where
    `lakesweep restore` restores it. `trash` at any level wins. In a bucket with versioning nothing is moved: the bucket
    itself keeps what is deleted, and `restore` restores it from there."""
    trash: Address | None = None
    """Where files go with `deletion = "trash"`: in the same store as the tenant's root, on a local disk in the same
    file system, and outside every table. Inside the root a part of its path begins with `.` or `_`, so that no table
    is looked for there. By default `.lakesweep-trash` in the tenant's root. Files stay where they were moved to:
    `restore` finds them after this was changed, but only a place that the settings name is emptied."""
    trash_hours: Hours = 168.0
    """Hours for which files stay in the trash, a week by default, from the end of the run that moved them."""
    ceilings: CeilingSettings = CeilingSettings()
    """The most that one plan may delete."""


if TYPE_CHECKING:

    class CleanupOverride(Group):
        """See below."""

        def __getattr__(self, key: str) -> Any: ...

else:
    CleanupOverride = override_of(
        OrphanCleanupSettings,
        "Some of the keys of `[orphan_cleanup]`, for one tenant, dataset or table. What is not given is inherited.",
    )
