"""What must hold between settings. Pure: a tree whose single values are right in, every fault out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR
from lakesweep.model.table import BARE_TENANT, FACTS
from lakesweep.settings.cascade import overlay
from lakesweep.settings.cleanup import CleanupOverride, OrphanCleanupSettings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

if TYPE_CHECKING:
    from lakesweep.settings.schema import Settings

Key = tuple[str | int, ...]

BETWEEN = "between_settings"
"""Error type of these faults, to tell them from a single value that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that does not hold, at the key a person would mend."""

    key: Key
    value: Any
    message: str


def faults(settings: Settings) -> Iterator[Fault]:
    """All faults between settings."""
    yield from _cleanup_faults(("orphan_cleanup",), settings.orphan_cleanup, _as_override(settings.orphan_cleanup))
    yield from _repeated(("tenants",), "id", [tenant.id for tenant in settings.tenants])
    yield from _overlapping_roots(settings)
    yield from _own_files_in_a_root(settings)
    for index, tenant in enumerate(settings.tenants):
        yield from _tenant_faults(("tenants", index), tenant, settings.orphan_cleanup)


def _tenant_faults(key: Key, tenant: TenantSettings, inherited: OrphanCleanupSettings) -> Iterator[Fault]:
    if tenant.id == BARE_TENANT:
        message = "is reserved: bare locations are labelled location/FORMAT/ADDRESS"
        yield Fault(key=(*key, "id"), value=tenant.id, message=message)
    effective = overlay(inherited, tenant.orphan_cleanup)
    yield from _cleanup_faults((*key, "orphan_cleanup"), effective, tenant.orphan_cleanup)
    yield from _repeated((*key, "datasets"), "id", [dataset.id for dataset in tenant.datasets])
    for index, dataset in enumerate(tenant.datasets):
        below = (*key, "datasets", index)
        yield from _format_faults(below, dataset)
        yield from _place_faults(below, dataset, tenant)
        yield from _dataset_cleanup_faults(below, dataset, effective)


def _dataset_cleanup_faults(key: Key, dataset: DatasetSettings, inherited: OrphanCleanupSettings) -> Iterator[Fault]:
    effective = overlay(inherited, dataset.orphan_cleanup)
    yield from _cleanup_faults((*key, "orphan_cleanup"), effective, dataset.orphan_cleanup)
    yield from _repeated((*key, "tables"), "name", [table.name for table in dataset.tables])
    for index, table in enumerate(dataset.tables):
        narrowest = overlay(effective, table.orphan_cleanup)
        yield from _cleanup_faults((*key, "tables", index, "orphan_cleanup"), narrowest, table.orphan_cleanup)


def _cleanup_faults(key: Key, effective: OrphanCleanupSettings, given: CleanupOverride) -> Iterator[Fault]:
    """Judge the effective values, but only at a level that gives one of them: a fault is told once."""
    floor = GRACE_FLOOR.total_seconds() / 3600
    about_grace = given.grace_period_hours is not None or given.allow_short_grace is not None
    if about_grace and effective.grace_period_hours < floor and not effective.allow_short_grace:
        yield Fault(
            key=(*key, "grace_period_hours"),
            value=effective.grace_period_hours,
            message=f"must be at least {floor:g}, unless allow_short_grace = true says that no writer can hold "
            "uncommitted files for that long",
        )
    about_revalidation = given.revalidate_before_delete is not None or given.dry_run is not None
    if about_revalidation and not (effective.revalidate_before_delete or effective.dry_run):
        yield Fault(
            key=(*key, "revalidate_before_delete"),
            value=False,
            message="must be true unless dry_run = true: references are always checked again before a real delete",
        )


def _as_override(settings: OrphanCleanupSettings) -> CleanupOverride:
    return CleanupOverride(**settings.model_dump())


def _repeated(key: Key, field: str, names: list[str]) -> Iterator[Fault]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Fault(key=(*key, index, field), value=name, message="is given twice; each must be unique")


def _format_faults(key: Key, dataset: DatasetSettings) -> Iterator[Fault]:
    mine = FACTS[dataset.format].keys
    if getattr(dataset, mine[0]) is None:
        yield Fault(key=(*key, mine[0]), value=None, message=f"is required when format = '{dataset.format}'")
    for other in sorted({name for facts in FACTS.values() for name in facts.keys} - set(mine)):
        value = getattr(dataset, other)
        if value is not None:
            hint = (
                " (an Iceberg warehouse goes inside catalog)" if mine[0] == "catalog" and other == "warehouse" else ""
            )
            message = f"does not belong to format = '{dataset.format}', which uses {' and '.join(mine)}{hint}"
            yield Fault(key=(*key, other), value=value, message=message)


def _place_faults(key: Key, dataset: DatasetSettings, tenant: TenantSettings) -> Iterator[Fault]:
    root = Location.parse(tenant.root)
    for name in ("warehouse", "location"):
        value = getattr(dataset, name)
        if value is not None and not _within(root, Location.parse(value)):
            message = f"must be inside the tenant's root {tenant.root}: nothing outside is ever touched"
            yield Fault(key=(*key, name), value=value, message=message)


def _overlapping_roots(settings: Settings) -> Iterator[Fault]:
    for index, tenant in enumerate(settings.tenants):
        for other in settings.tenants[:index]:
            if Location.parse(tenant.root).overlaps(Location.parse(other.root)):
                message = f"must not overlap the root of tenant '{other.id}' ({other.root})"
                yield Fault(key=("tenants", index, "root"), value=tenant.root, message=message)


def _own_files_in_a_root(settings: Settings) -> Iterator[Fault]:
    """Plans and ledgers below a table would look like orphans of it."""
    places = [("data_dir", str(settings.service.data_dir))]
    if settings.service.artifacts is not None:
        places.append(("artifacts", settings.service.artifacts))
    for name, place in places:
        for tenant in settings.tenants:
            if _within(Location.parse(tenant.root), Location.parse(place)):
                message = f"must be outside the root of tenant '{tenant.id}' ({tenant.root})"
                yield Fault(key=("service", name), value=place, message=message)


def _within(root: Location, place: Location) -> bool:
    return root.as_directory() == place.as_directory() or root.contains(place)
