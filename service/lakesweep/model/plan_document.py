"""The JSON document of a plan: `plan --json` and the API. The rules are those of `run_document`."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict  # Pydantic accepts the one of `typing` only from Python 3.12 on

from lakesweep.model import run_document
from lakesweep.model.files import Reason
from lakesweep.model.run_document import Count, Described, Moment, Tally
from lakesweep.model.table import FormatName


class OrphanFile(TypedDict):
    """A file that the plan would delete."""

    path: str
    size_bytes: Count
    modified_at: Moment | None
    kind: str
    reason: Reason


class Orphans(Tally):
    """All files of a plan in numbers, some of them by name."""

    files: list[OrphanFile]


class OrphansByReason(Orphans):
    """The same, and how many go for which reason."""

    by_reason: dict[str, Tally]


class KeptSnapshot(TypedDict):
    """A snapshot that stays, and why."""

    id: str
    why: str


class Expiry(TypedDict):
    """What would expire."""

    snapshots: list[str]
    partitions: list[str]
    partition_files: Tally
    refs: list[str]
    kept: Count
    kept_because: list[KeptSnapshot]
    skipped: str | None


class Plan(TypedDict):
    """One table of `plan --json`."""

    table: str
    format: FormatName
    location: str | None
    run_id: str
    head: str | None
    expire: Expiry
    verdicts: dict[str, Count]
    verdict_bytes: dict[str, Count]
    orphans: OrphansByReason
    freed_bytes: Annotated[Count, Described(description="Bytes that executing this plan frees at once.")]
    retained_bytes: Annotated[
        run_document.Retained, Described(description="Bytes of it that stay, in the trash or as versions.")
    ]
    store: run_document.Store | None
    warnings: list[str]
    unconfirmed: Tally
    missing: run_document.Missing
    stream: str | None
    lent: list[run_document.SharedFiles]
    requests: run_document.Requests
    listed: bool
    last_listed_at: Moment | None
    listed_because: str | None
    engine: run_document.EngineChoice | None
    refused: run_document.Refusal | None
    digest: str | None
