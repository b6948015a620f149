"""What holds for one table after the cascade global < tenant < dataset < table. Pure.

The most specific value wins, but for dry_run the safer one: true at any level is true. `--execute` on the command
line is the operator's word and overrides the global dry_run alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lakesweep.model.errors import SettingsError
from lakesweep.model.policy import Ceilings, CleanupPolicy
from lakesweep.settings.cleanup import CleanupOverride, OrphanCleanupSettings

if TYPE_CHECKING:
    from lakesweep.settings.schema import Settings


def decided(override: CleanupOverride) -> dict[str, Any]:
    """What one level says, whatever it inherits."""
    given = override.model_dump(exclude_none=True)
    if "cleanup_interval_hours" in given:
        given.setdefault("cron", None)  # the narrower schedule takes the place of the wider one, whatever its kind
    if not override.dry_run:
        given.pop("dry_run", None)  # the safer one wins, so false says nothing
    return given


def overlay(base: OrphanCleanupSettings, override: CleanupOverride) -> OrphanCleanupSettings:
    """One step of the cascade."""
    given = decided(override)
    ceilings = base.ceilings.model_copy(update=given.pop("ceilings"))
    return base.model_copy(update={**given, "ceilings": ceilings})


def cleanup_for(
    settings: Settings, tenant: str | None = None, dataset: str | None = None, table: str | None = None
) -> OrphanCleanupSettings:
    """The whole group as it holds for one table; names that are not configured override nothing."""
    effective = settings.orphan_cleanup
    for override in overrides(settings, tenant, dataset, table):
        effective = overlay(effective, override)
    return effective


def policy_for(
    settings: Settings,
    tenant: str | None = None,
    dataset: str | None = None,
    table: str | None = None,
    *,
    execute: bool | None = None,
) -> CleanupPolicy:
    """The rules for one table. `execute` is the command line's word; None is the service on its own."""
    effective = cleanup_for(settings, tenant, dataset, table)
    match execute:
        case None:
            dry_run = effective.dry_run
        case False:
            dry_run = True
        case True:
            dry_run = any(override.dry_run for override in overrides(settings, tenant, dataset, table))
    if not (dry_run or effective.revalidate_before_delete):
        raise SettingsError(
            "orphan_cleanup.revalidate_before_delete = false is allowed only in a dry run: references are always "
            "checked again before a real delete, so remove the key from the settings to execute"
        )
    return CleanupPolicy(
        dry_run=dry_run,
        grace_period=timedelta(hours=effective.grace_period_hours),
        allow_short_grace=effective.allow_short_grace,
        max_snapshot_age=timedelta(hours=effective.max_snapshot_age_hours),
        min_snapshots_to_keep=effective.min_snapshots_to_keep,
        confirm_after=timedelta(hours=effective.confirm_after_hours),
        stream_state=timedelta(hours=effective.stream_state_hours),
        on_missing=effective.on_missing,
        max_clock_skew=timedelta(minutes=effective.max_clock_skew_minutes),
        batch_size=effective.batch_size,
        max_concurrent_deletions=effective.max_concurrent_deletions,
        ceilings=Ceilings(**effective.ceilings.model_dump()),
    )


def overrides(
    settings: Settings, tenant: str | None, dataset: str | None, table: str | None
) -> Iterator[CleanupOverride]:
    """From the widest to the narrowest."""
    if (owner := settings.tenant(tenant)) is None:
        return
    yield owner.orphan_cleanup
    if (source := owner.dataset(dataset)) is None:
        return
    yield source.orphan_cleanup
    if (single := source.table(table)) is not None:
        yield single.orphan_cleanup
