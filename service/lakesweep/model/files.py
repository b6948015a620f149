"""Stored objects, the verdict on each, and the plan made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lakesweep.model.errors import FailureKind
from lakesweep.model.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object as the store lists it. An unknown time is None and always means keep."""

    location: Location
    size_bytes: int
    modified_at: datetime | None
    etag: str | None = None


class AgeBy(StrEnum):
    """Which time of a local file counts as its age."""

    CHANGE = "change"
    """The later of its modification and change times: a file that was moved or copied here may keep its old
    modification time."""
    MODIFICATION = "modification"
    """Only its modification time: where files are dated back on purpose, or where the change time means nothing."""


class Verdict(StrEnum):
    """Why an object stays or goes. Only ORPHAN may go."""

    LIVE = "live"
    YOUNG = "young"
    RESERVED = "reserved"
    FOREIGN = "foreign"
    ORPHAN = "orphan"


class Reason(StrEnum):
    """What makes an orphan deletable."""

    UNREFERENCED = "unreferenced"
    """Nothing refers to it now, and it is older than the grace period."""
    EXPIRED = "expired"
    """Only snapshots that this plan expires refer to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many files, how many bytes. Sums with +."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(files=self.files + other.files, bytes=self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One row of a plan. `path` is the raw listed address: the only thing that is ever deleted."""

    path: str
    size_bytes: int
    modified_at: datetime | None
    etag: str | None
    kind: str
    reason: Reason
    stage: int = 0
    """Lower stages are deleted first; a format orders its own files by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlan:
    """What may be deleted, as a durable value. The rows are in `rows_path` (Parquet, sorted by stage and path)."""

    head: str
    cutoff: datetime
    verdicts: dict[Verdict, Tally]
    candidates: Tally
    by_kind: dict[str, Tally]
    by_reason: dict[Reason, Tally]
    missing: tuple[str, ...]
    """Live files that storage does not show, at most `MISSING_SHOWN` of them."""
    missing_count: int
    missing_clash: tuple[str, ...] = ()
    """Names that a missing live file and a candidate share: the table's addresses are probably wrong."""
    unverified: int = 0
    """Live files outside the listed places: kept, but their existence was not checked."""
    unverified_first: str | None = None
    """The first of them, by address."""
    unverified_shown: tuple[str, ...] = ()
    """At most `MISSING_SHOWN` of them. If these are all, they are checked by address; see `cleanup.unlisted`."""
    references: int
    """Distinct references read from retained snapshots."""
    matched: int
    """Listed objects that a retained reference names."""
    unreferenced_metadata: tuple[str, ...] = ()
    """Listed objects of kind `metadata` that nothing refers to, newest first, whatever their verdict: metadata of
    another table is evidence that it lives in these roots. At most `METADATA_SHOWN` of them."""
    unconfirmed: Tally = field(default_factory=Tally)
    """Files that have not been seen unreferenced for long enough. Counted as YOUNG, not as candidates."""
    listed: bool = True
    """False if only single objects were checked: unreferenced and missing files were not looked for."""
    as_of: datetime | None = None
    """When the list of objects was made, if that was before this plan: they may have changed since then."""
    skipped_sources: int = 0
    """Sources of expiring snapshots that could not be read: files that only they name stay for their grace period."""
    rows_path: str
    digest: str
    engine: str
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds per phase, for people."""


MISSING_SHOWN = 1000
"""How many missing live files a plan names; the count is always exact."""

METADATA_SHOWN = 200_000
"""How many unreferenced metadata files a plan names. An Iceberg table leaves one behind with every commit unless it is
configured otherwise, and a stream commits every minute."""


class Went(StrEnum):
    """Where the bytes of an object are after it was deleted."""

    FREED = "freed"
    """Nowhere: the store freed them, as far as it reports."""
    TRASH = "trash"
    VERSIONS = "versions"
    """The store keeps the object as an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDelete:
    """An object that the store did not delete, and the store's message."""

    path: str
    why: str
    kind: FailureKind = FailureKind.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReport:
    """What happened to the objects of one or more batches. Sums with +."""

    deleted: Tally = field(default_factory=Tally)
    already_gone: int = 0
    failed: tuple[FailedDelete, ...] = ()
    by_kind: dict[str, Tally] = field(default_factory=dict)
    retained: dict[Went, Tally] = field(default_factory=dict)
    """Deleted files that are still in the trash or kept by the store. All others are freed."""

    @property
    def freed_bytes(self) -> int:
        return self.deleted.bytes - sum(tally.bytes for tally in self.retained.values())

    def retained_bytes(self, where: Went) -> int:
        return self.retained.get(where, Tally()).bytes

    def __add__(self, other: DeletionReport) -> DeletionReport:
        kinds, retained = dict(self.by_kind), dict(self.retained)
        for kind, tally in other.by_kind.items():
            kinds[kind] = kinds.get(kind, Tally()) + tally
        for where, tally in other.retained.items():
            retained[where] = retained.get(where, Tally()) + tally
        return DeletionReport(
            deleted=self.deleted + other.deleted,
            already_gone=self.already_gone + other.already_gone,
            failed=self.failed + other.failed,
            by_kind=kinds,
            retained=retained,
        )
