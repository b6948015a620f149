"""The settings of one table after the cascade global < tenant < dataset < table. Pure.

The most specific value wins, except for dry_run, deletion and ghost_grace_hours, where the safest value at any level
wins: true, "trash", or the longest. `--execute` on the command line overrides only the global dry_run.

Rules for one call, from the command line or Python, are the narrowest level and have the same minimums; they cannot
lift a ceiling, a hold or a `dry_run = true`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from pydantic import ValidationError

from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CadenceKind, Ceilings, CleanupPolicy, Deletion
from lakesweep.model.trash import default_trash
from lakesweep.settings.cleanup import CleanupOverride, OrphanCleanupSettings
from lakesweep.settings.tenants import DatasetSettings, TableSettings, TenantSettings

if TYPE_CHECKING:
    from lakesweep.settings.schema import Settings


def decided(override: CleanupOverride) -> dict[str, Any]:
    """The keys that one level itself sets."""
    given = override.model_dump(exclude_none=True)
    if "cleanup_interval_hours" in given:
        given.setdefault("cron", None)  # the narrower schedule replaces the wider one, whatever its kind
    if not override.dry_run:
        given.pop("dry_run", None)  # the safer one wins, so false has no effect
    if override.deletion is Deletion.DELETE:
        given.pop("deletion")  # likewise
    return given


def overlay(base: OrphanCleanupSettings, override: CleanupOverride) -> OrphanCleanupSettings:
    given = decided(override)
    ceilings = base.ceilings.model_copy(update=given.pop("ceilings"))
    if given.get("ghost_grace_hours", base.ghost_grace_hours) < base.ghost_grace_hours:
        given.pop("ghost_grace_hours")  # the longer one wins
    return base.model_copy(update={**given, "ceilings": ceilings})


def cleanup_for(settings: Settings, *names: str | None) -> OrphanCleanupSettings:
    """The whole group for one table, by tenant, dataset and table; names that are not configured override nothing."""
    effective = settings.orphan_cleanup
    for override in overrides(settings, *names):
        effective = overlay(effective, override)
    return effective


def policy_for(
    settings: Settings, *names: str | None, execute: bool | None = None, override: CleanupOverride | None = None
) -> CleanupPolicy:
    """The policy for one table. `execute` comes from the command line; None is the service itself. `override` are rules
    for one call, with the same minimums."""
    effective = cleanup_for(settings, *names)
    if override is not None:
        effective = overlay(effective, override)
        _check_minimums(effective)
    match execute:
        case None:
            dry_run = effective.dry_run
        case False:
            dry_run = True
        case True:
            dry_run = any(override.dry_run for override in overrides(settings, *names))
        case _:
            assert_never(execute)
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
        listing_interval=_listing_interval(effective),
        on_missing=effective.on_missing,
        max_clock_skew=timedelta(minutes=effective.max_clock_skew_minutes),
        batch_size=effective.batch_size,
        max_concurrent_deletions=effective.max_concurrent_deletions,
        deletion=effective.deletion,
        ceilings=Ceilings(**effective.ceilings.model_dump()),
    )


def trash_for(settings: Settings, root: Location, *names: str | None) -> Location:
    """Where a table's files go with `deletion = "trash"`. `root` is its tenant's, or a bare location's."""
    given = cleanup_for(settings, *names).trash
    return Location.parse(given) if given else default_trash(root)


def trash_places(settings: Settings, tenant: TenantSettings) -> list[Location]:
    """Every place that any level names as the tenant's trash, and the default one in its root."""
    levels = [settings.orphan_cleanup.trash, *(one.orphan_cleanup.trash for one in _levels(tenant))]
    given = [Location.parse(trash) for trash in levels if trash]
    return list(dict.fromkeys([default_trash(Location.parse(tenant.root)), *given]))


def _check_minimums(effective: OrphanCleanupSettings) -> None:
    """Settings are checked when they are read; the rules of one call are checked here."""
    if timedelta(hours=effective.grace_period_hours) < GRACE_FLOOR and not effective.allow_short_grace:
        raise SettingsError(
            f"a grace period of {effective.grace_period_hours:g} h is below {GRACE_FLOOR.total_seconds() / 3600:g} h: "
            "allowed only where orphan_cleanup.allow_short_grace = true is configured for the table"
        )


def _listing_interval(effective: OrphanCleanupSettings) -> timedelta | None:
    """An adaptive cadence decides itself when to list; this is the longest it may wait."""
    hours = effective.listing_interval_hours
    if hours is None and effective.cadence is CadenceKind.ADAPTIVE:
        hours = effective.max_interval_hours
    return None if hours is None else timedelta(hours=hours)


def overrides(settings: Settings, *names: str | None) -> Iterator[CleanupOverride]:
    """From the widest to the narrowest."""
    tenant, dataset, table = (*names, None, None, None)[:3]
    if (owner := settings.tenant(tenant)) is None:
        return
    yield owner.orphan_cleanup
    if (source := owner.dataset(dataset)) is None:
        return
    yield source.orphan_cleanup
    if (single := source.table(table)) is not None:
        yield single.orphan_cleanup


def ghost_grace(settings: Settings, tenant: str) -> timedelta:
    """How long a ghost of this tenant stays complete: the longest at any level, as a ghost belongs to no dataset."""
    narrower = (one.orphan_cleanup.ghost_grace_hours for one in _levels(settings.tenant(tenant)))
    return timedelta(hours=max([settings.orphan_cleanup.ghost_grace_hours, *(one for one in narrower if one)]))


def ghost_policy(
    settings: Settings, policy: CleanupPolicy, tenant: str, place: Location, *, known: bool
) -> CleanupPolicy:
    """The policy for a ghost, given that of its tenant and of the table that it was, if that is `known`. `trash` at any
    level of the tenant applies, and so does the dry_run of a dataset in whose location it may be. If it is not known,
    the dry_run of every table applies too: the ghost may be that table."""
    levels = _levels(settings.tenant(tenant))
    trash = any(one.orphan_cleanup.deletion is Deletion.TRASH for one in levels)
    dry = any(
        one.orphan_cleanup.dry_run and (_may_hold(one, place) or (not known and isinstance(one, TableSettings)))
        for one in levels
    )
    return replace(policy, dry_run=policy.dry_run or dry, deletion=Deletion.TRASH if trash else policy.deletion)


def _levels(owner: TenantSettings | None) -> list[TenantSettings | DatasetSettings | TableSettings]:
    if owner is None:
        return []
    levels: list[TenantSettings | DatasetSettings | TableSettings] = [owner]
    for dataset in owner.datasets:
        levels += (dataset, *dataset.tables)
    return levels


def _may_hold(level: TenantSettings | DatasetSettings | TableSettings, place: Location) -> bool:
    """May this level concern this place? A dataset with its own location is only there; a table that is still
    configured is not a ghost."""
    own = [Location.parse(one) for one in level.places.values()] if isinstance(level, DatasetSettings) else []
    return not isinstance(level, TableSettings) and (not own or any(one.overlaps(place) for one in own))


_SPAN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([mhdw])\s*$")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def override_for_call(
    *,
    older_than: timedelta | None = None,
    retain_last: int | None = None,
    grace: timedelta | None = None,
    spelled: Callable[[str], str] = str,
) -> CleanupOverride:
    """The age from which snapshots may expire, how many stay on each branch, and the grace of unreferenced files.
    `spelled` makes of such a name what the caller knows it by, for messages."""
    given: dict[str, Any] = {
        "max_snapshot_age_hours": _hours("older_than", older_than),
        "min_snapshots_to_keep": _number("retain_last", retain_last),
        "grace_period_hours": _hours("grace", grace),
    }
    try:
        return CleanupOverride.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        names = {"max_snapshot_age_hours": "older_than", "min_snapshots_to_keep": "retain_last"}
        faults = [
            f"{spelled(names.get(str(fault['loc'][0]), 'grace'))}: {fault['msg'].replace('Input should be', 'must be')}"
            for fault in exc.errors()
        ]
        raise SettingsError(faults) from exc


def span_of(name: str, text: str | None) -> timedelta | None:
    """Parse `90m`, `12h`, `3d` or `2w`."""
    if text is None:
        return None
    found = _SPAN.match(text)
    if found is None:
        raise SettingsError(f"{name} {text!r}: expected a number and m, h, d or w, such as 3d")
    return float(found[1]) * _UNITS[found[2]]


def _number(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise SettingsError(f"{name} must be a whole number, such as 5, not {value!r}")
    return value


def _hours(name: str, value: timedelta | None) -> float | None:
    if value is None:
        return None
    if not isinstance(value, timedelta):
        raise SettingsError(f"{name} must be a datetime.timedelta, such as timedelta(days=3), not {value!r}")
    return value.total_seconds() / 3600
