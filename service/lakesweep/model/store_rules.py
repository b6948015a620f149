"""What a store itself does with deleted objects: versions, lifecycle rules that remove them, and what it keeps and
charges for besides the files that a listing shows. Pure.

None of these leftovers is waste that a cycle deletes: the trash empties itself, and lifecycle rules end the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from lakesweep.model.location import Location


class Versioning(StrEnum):
    """Whether a bucket keeps versions."""

    OFF = "off"
    ON = "on"
    SUSPENDED = "suspended"
    """New versions are not kept; existing ones are."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One rule that applies to every object below a prefix."""

    prefix: str = ""
    noncurrent_days: int | None = None
    """Days after which versions that are no longer current are removed."""
    abort_uploads_days: int | None = None
    """Days after which multipart uploads that were never completed are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRules:
    """What is known about one bucket."""

    versioning: Versioning = Versioning.UNKNOWN
    lifecycle: tuple[LifecycleRule, ...] | None = None
    """None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRules:
    """The rules that apply to a table's places."""

    versioning: Versioning = Versioning.UNKNOWN
    noncurrent_days: int | None = None
    """Days after which the bytes of a deleted object are freed, if versions are kept. None: never, or unknown."""
    abort_uploads_days: int | None = None
    warning: str | None = None

    @property
    def keeps_versions(self) -> bool:
        """Does a delete free no bytes?"""
        return self.versioning in (Versioning.ON, Versioning.SUSPENDED)


UNKNOWN = StoreRules()


def at(place: Location, bucket: BucketRules) -> StoreRules:
    prefix = place.as_directory().path
    rules = StoreRules(
        versioning=bucket.versioning,
        noncurrent_days=_days(bucket.lifecycle, prefix, "noncurrent_days"),
        abort_uploads_days=_days(bucket.lifecycle, prefix, "abort_uploads_days"),
    )
    if not rules.keeps_versions or bucket.lifecycle is None or rules.noncurrent_days is not None:
        return rules
    warning = (
        f"the bucket {place.authority} keeps versions, and no lifecycle rule removes noncurrent ones below "
        f"{prefix or 'its top'}: what is deleted is still stored and paid for. Add a rule for this prefix with "
        "NoncurrentVersionExpiration (NoncurrentDays, say 7) and Expiration (ExpiredObjectDeleteMarker)"
    )
    return replace(rules, warning=warning)


def of_all(found: Sequence[StoreRules]) -> StoreRules:
    """The rules of a table with several places: those of the place that keeps the most."""
    if not found:
        return UNKNOWN
    order = (Versioning.ON, Versioning.SUSPENDED, Versioning.UNKNOWN, Versioning.OFF)
    return min(found, key=lambda one: (order.index(one.versioning), one.warning is None, -(one.noncurrent_days or 0)))


def _days(rules: Sequence[LifecycleRule] | None, prefix: str, name: str) -> int | None:
    """The first rule that applies to everything below the prefix decides."""
    days = [getattr(rule, name) for rule in rules or () if prefix.startswith(rule.prefix)]
    return min((one for one in days if one is not None), default=None)


class LeftoverKind(StrEnum):
    """Kinds of stored bytes that no listing shows as files of a table."""

    TRASH = "trash"
    """Deleted by a run of ours, and moved aside until `trash_hours` have passed."""
    NONCURRENT_VERSIONS = "noncurrent_versions"
    """Deleted or overwritten in a bucket that keeps versions."""
    INCOMPLETE_UPLOADS = "incomplete_uploads"
    """Parts of multipart uploads that nobody has completed or aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverPage:
    """One page of a store's response for one kind. Only the last page has a `problem`."""

    kind: LeftoverKind
    files: Sequence[tuple[str, int]] | None = None
    """Full address and bytes of each; None if the store did not answer."""
    requests: int = 0
    """Requests sent so far for this kind."""
    problem: str | None = None
    """Why counting of this kind stopped, although there may be more."""


def not_counted(why: str) -> list[LeftoverPage]:
    """The result for a store without versions and uploads."""
    kinds = (LeftoverKind.NONCURRENT_VERSIONS, LeftoverKind.INCOMPLETE_UPLOADS)
    return [LeftoverPage(kind=kind, problem=why) for kind in kinds]
