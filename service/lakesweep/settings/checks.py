"""Checks between settings. Pure: takes a tree whose single values are valid, returns every fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakesweep.model.location import Location
from lakesweep.model.policy import GRACE_FLOOR, CadenceKind, Deletion
from lakesweep.model.table import BARE_TENANT, FACTS, GHOSTS
from lakesweep.settings.cascade import cleanup_for, overlay
from lakesweep.settings.cleanup import CleanupOverride, OrphanCleanupSettings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.storage.kinds import has_store

if TYPE_CHECKING:
    from lakesweep.settings.schema import Settings

BETWEEN = "between_settings"
"""Error type of these faults, to distinguish them from faults of a single value."""

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One contradiction, reported at the key that a person would change."""

    key: Key
    value: object
    message: str


def faults(settings: Settings) -> Iterator[Fault]:
    yield from _cleanup_faults(
        ("orphan_cleanup",), settings.orphan_cleanup, CleanupOverride(**settings.orphan_cleanup.model_dump())
    )
    yield from _repeated(("tenants",), "id", [tenant.id for tenant in settings.tenants])
    yield from _overlapping_roots(settings)
    yield from _own_files_in_a_root(settings)
    yield from _trash_faults(settings)
    yield from _scratch_faults(settings)
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
        if dataset.id == GHOSTS:
            message = f"is reserved: former tables that nobody claims are labelled TENANT/{GHOSTS}/PATH"
            yield Fault(key=(*below, "id"), value=dataset.id, message=message)
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
    """Check the effective values, but only at a level that sets one of them, so that a fault is reported once."""
    floor = GRACE_FLOOR.total_seconds() / 3600
    for name in ("grace_period_hours", "ghost_grace_hours"):
        about_it = getattr(given, name) is not None or given.allow_short_grace is not None
        if about_it and getattr(effective, name) < floor and not effective.allow_short_grace:
            yield Fault(
                key=(*key, name),
                value=getattr(effective, name),
                message=f"must be at least {floor:g}, unless allow_short_grace = true says that no writer can hold "
                "uncommitted files for that long",
            )
    yield from _interval_faults(key, effective, given)
    about_revalidation = given.revalidate_before_delete is not None or given.dry_run is not None
    if about_revalidation and not (effective.revalidate_before_delete or effective.dry_run):
        yield Fault(
            key=(*key, "revalidate_before_delete"),
            value=False,
            message="must be true unless dry_run = true: references are always checked again before a real delete",
        )


def _interval_faults(key: Key, effective: OrphanCleanupSettings, given: CleanupOverride) -> Iterator[Fault]:
    """Only an adaptive cadence has a longest interval."""
    shortest, longest = effective.min_interval_hours, effective.max_interval_hours
    about_it = any(one is not None for one in (given.cadence, given.min_interval_hours, given.max_interval_hours))
    if not about_it or effective.cadence is not CadenceKind.ADAPTIVE or shortest <= longest:
        return
    if given.min_interval_hours is not None:
        message = f"must not be more than max_interval_hours = {longest:g}"
        yield Fault(key=(*key, "min_interval_hours"), value=shortest, message=message)
    else:
        message = f"must not be less than min_interval_hours = {shortest:g}"
        yield Fault(key=(*key, "max_interval_hours"), value=longest, message=message)


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
    for name, value in dataset.places.items():
        if not _within(root, Location.parse(value)):
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


def _scratch_faults(settings: Settings) -> Iterator[Fault]:
    """Abandoned scratch files are removed, so nothing else may be there."""
    spark, key = settings.engine.spark, ("engine", "spark", "scratch")
    scratch = spark.scratch or spark.conf.get("spark.lakesweep.scratch")  # its former name
    if scratch is None:
        return
    if spark.remote is not None and ":" in scratch and not has_store(scratch):
        message = "must be s3://… or a directory with Spark Connect, which cannot remove files elsewhere"
        yield Fault(key=key, value=scratch, message=message)
    place = Location.parse_or_none(scratch)
    if place is None:
        return  # dbfs:/ and the like: no tenant's root has this form
    for tenant in settings.tenants:
        if Location.parse(tenant.root).overlaps(place):
            message = f"must not overlap the root of tenant '{tenant.id}' ({tenant.root})"
            yield Fault(key=key, value=scratch, message=message)


def _within(root: Location, place: Location) -> bool:
    return root.as_directory() == place.as_directory() or root.contains(place)


def _trash_faults(settings: Settings) -> Iterator[Fault]:
    """All faults of trash locations, and of how long files stay there."""
    yield from _forgotten_too_early(settings)
    shared = settings.orphan_cleanup.trash
    if shared and len(settings.tenants) > 1:
        yield Fault(
            key=("orphan_cleanup", "trash"),
            value=shared,
            message="is one place for several tenants: give each tenant its own, or leave it out and each has "
            ".lakesweep-trash in its root",
        )
        return
    places = [
        (tenant, key, given, Location.parse(given))
        for index, tenant in enumerate(settings.tenants)
        for key, given in _trash_given(settings, index, tenant)
    ]
    for tenant, key, given, place in places:
        message = next(_trash_problems(settings, tenant, place, Location.parse(tenant.root)), None)
        others = (other for other, _, _, theirs in places if other.id != tenant.id and theirs.overlaps(place))
        if message is None and (other := next(others, None)):
            message = f"must not overlap the trash of tenant '{other.id}': give each tenant its own"
        if message:
            yield Fault(key=(*key, "orphan_cleanup", "trash"), value=given, message=message)


def _forgotten_too_early(settings: Settings) -> Iterator[Fault]:
    """What is in the trash is known by the run that moved it: that must be remembered for longer."""
    levels: list[tuple[str, ...]] = [()]
    for tenant in settings.tenants:
        levels.append((tenant.id,))
        for dataset in tenant.datasets:
            levels += [(tenant.id, dataset.id), *((tenant.id, dataset.id, one.name) for one in dataset.tables)]
    effective = [cleanup_for(settings, *level) for level in levels]
    longest = max((one.trash_hours for one in effective if one.deletion is Deletion.TRASH), default=0.0)
    if longest >= settings.service.keep_runs_days * 24:
        message = f"must be more than the {longest:g} hours of trash_hours: a run that is forgotten cannot be restored"
        yield Fault(key=("service", "keep_runs_days"), value=settings.service.keep_runs_days, message=message)


def _trash_given(settings: Settings, index: int, tenant: TenantSettings) -> Iterator[tuple[Key, str]]:
    mine: Key = ("tenants", index)
    levels: list[tuple[Key, str | None]] = [((), settings.orphan_cleanup.trash), (mine, tenant.orphan_cleanup.trash)]
    for at, dataset in enumerate(tenant.datasets):
        below = (*mine, "datasets", at)
        levels.append((below, dataset.orphan_cleanup.trash))
        levels += [((*below, "tables", of), table.orphan_cleanup.trash) for of, table in enumerate(dataset.tables)]
    yield from ((key, trash) for key, trash in levels if trash)


def _trash_problems(settings: Settings, tenant: TenantSettings, trash: Location, root: Location) -> Iterator[str]:
    if trash.scheme != root.scheme:
        yield f"must be in the same store as the tenant's root {tenant.root}: files are moved there, never downloaded"
    for other in settings.tenants:
        if other.id != tenant.id and Location.parse(other.root).overlaps(trash):
            yield f"must not overlap the root of tenant '{other.id}' ({other.root})"
    for dataset in tenant.datasets:
        for place in (*dataset.places.values(), dataset.inventory):
            if place and _within(trash, Location.parse(place)):
                yield f"must not contain {place} of dataset '{dataset.id}'"
    if _within(trash, root):
        yield f"must not contain the tenant's root {tenant.root}"
    if root.contains(trash):
        below = trash.path[len(root.as_directory().path) :].split("/")
        if not any(segment.startswith((".", "_")) for segment in below):
            yield "inside the tenant's root a part of its path must begin with . or _, so that no table is found in it"
    elif root.overlaps(trash):
        yield f"may be inside the tenant's root {tenant.root} under another spelling: spell it like the root"
