"""The shapes that the API takes and gives, for its OpenAPI document. A field may be added, never renamed or removed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lakesweep.model.files import Reason
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="A run's id.", examples=["0f" * 16])]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
Count = Annotated[int, Field(ge=0)]


class Asked(BaseModel):
    """A request. What it does not know is an error: a slip must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Given(BaseModel):
    """An answer. More may come with a later version."""

    model_config = ConfigDict(extra="allow")


class RunRequest(Asked):
    """Which table to work on, and whether to change anything."""

    target: Name = Field(description="One configured table: tenant/dataset/table.", examples=["acme/prod/orders"])
    execute: bool = Field(False, description="Really expire and delete. Without it: a dry run.")


class ApprovalRequest(Asked):
    """What is approved."""

    digest: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Of the plan that was looked at. If it is given, no other plan is approved."
    )


class ScopeRequest(Asked):
    """What is paused, or goes on."""

    scope: Name | None = Field(
        None, description="`*`, a tenant, a dataset or a table. Without it: everything that the token is for."
    )
    reason: Annotated[str, Field(max_length=1000)] | None = Field(None, description="Why, for others to read.")


class Tally(Given):
    """So many files, so many bytes."""

    count: Count
    bytes: Count


class Deleted(Tally):
    """What was really deleted."""

    by_kind: dict[str, Count]


class Refusal(Given):
    """Why nothing was done: a stable code, and a sentence."""

    code: str
    reason: str | None


class EngineChoice(Given):
    """What planned it."""

    kind: str
    why: str


class FailedFile(Given):
    """A file that the store would not delete, and what it said."""

    path: str
    why: str


class Failed(Given):
    """Files that could not be deleted; the first thousand are named."""

    count: Count
    files: list[FailedFile]


class Missing(Given):
    """Live files that storage does not show."""

    count: Count
    files: list[str]
    unverified: Count = Field(
        default=0, description="Live files that lie outside the listed places and were not looked for."
    )


class Kept(Given):
    """Files that stay, by verdict."""

    live: Count
    young: Count
    reserved: Count
    foreign: Count


class Run(Given):
    """One cycle over one table. `outcome` is null until its end."""

    table: str
    format: FormatName
    location: str | None
    run_id: str
    phase: str
    outcome: Outcome | None
    reason: str | None
    refused: Refusal | None
    started_at: datetime
    finished_at: datetime | None
    head: str | None
    engine: EngineChoice | None
    expired_snapshots: list[str]
    expired_partitions: list[str]
    orphans: Tally
    deleted: Deleted
    already_gone: Count
    failed: Failed
    spared: Count
    kept: Kept
    kept_bytes: Kept
    missing: Missing


class Runs(Given):
    """Some runs, newest first."""

    runs: list[Run]
    next: str | None = Field(description="Give it as `before` for older ones; null when there are none.")


class Table(Given):
    """A table that the service knows."""

    table: str
    format: FormatName
    location: str | None
    problem: str | None = Field(description="Why it cannot be worked on, if so.")
    last_run: Run | None
    next_due: datetime | None
    paused: bool


class Tables(Given):
    """Some tables, by name."""

    tables: list[Table]
    next: str | None = Field(description="Give it as `after` for more; null when there are none.")


class OrphanFile(Given):
    """A file that the plan would delete."""

    path: str
    size_bytes: Count
    modified_at: datetime | None
    kind: str
    reason: Reason


class Orphans(Tally):
    """All files of a plan in numbers, some of them by name."""

    files: list[OrphanFile]


class Plan(Given):
    """Part of the plan that a run made."""

    run_id: str
    table: str
    head: str
    digest: str
    created_at: datetime
    orphans: Orphans
    next: Count | None = Field(description="Give it as `offset` for more; null when there are none.")


class Started(Given):
    """A run that was begun or told to end."""

    run_id: str


class Approved(Given):
    """A plan that may go."""

    run_id: str
    table: str
    digest: str
    approved_by: str
    approved_at: datetime
    expires_at: datetime


class Paused(Given):
    """One thing that is paused."""

    scope: str
    since: datetime
    by: str | None
    reason: str | None


class Pauses(Given):
    """What is paused now."""

    paused: list[Paused]


class Health(Given):
    """How the service is."""

    status: str = Field(description="`ok` or `failing`.")
    checks: dict[str, str]
