"""The requests and answers of the API, for its OpenAPI document. Runs and tables are those of `model.run_document`.

A field may be added, never renamed or removed: an answer may have more with a later version.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict

from lakesweep.model import lake_report, plan_document, run_document
from lakesweep.model.ghost import GhostDocument
from lakesweep.model.run_document import Count, Moment

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="A run's id.", examples=["0f" * 16])]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
_FAR = datetime(9000, 1, 1, tzinfo=UTC)


class RequestBody(BaseModel):
    """A request. An unknown field is an error: a typo must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RunRequest(RequestBody):
    """Which table to work on, and whether to change anything."""

    target: Name = Field(description="One configured table: tenant/dataset/table.", examples=["acme/prod/orders"])
    execute: bool = Field(False, description="Really expire and delete. Without it: a dry run.")


class Event(StrEnum):
    """What a catalog, a bucket or a job reports about a table."""

    COMMITTED = "committed"
    JOB_ENDED = "job_ended"


class HintRequest(RequestBody):
    """Something happened to a table."""

    table: Name = Field(description="One configured table: tenant/dataset/table.", examples=["acme/prod/orders"])
    event: Annotated[Event, Field(strict=False, description="What happened.")]


class Hinted(TypedDict):
    """When the table is due now."""

    table: str
    next_due: Moment


class ApprovalRequest(RequestBody):
    """What is approved."""

    digest: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Digest of the plan that was reviewed. If given, only that plan is approved."
    )


class RestoreRequest(RequestBody):
    """What of a run is restored."""

    paths: list[Name] = Field(
        default_factory=list,
        max_length=100,
        description="Globs: only files whose address or name matches one. Without any: all that the run deleted.",
    )
    dry_run: bool = Field(False, description="Show what would be restored, and change nothing.")


class ScopeRequest(RequestBody):
    """What is paused, or resumed."""

    scope: Name | None = Field(
        None, description="`*`, a tenant, a dataset or a table. Without it: everything that the token covers."
    )
    reason: Annotated[str, Field(max_length=1000)] | None = Field(None, description="The reason, shown to others.")
    force: bool = Field(False, description="For `pause`: also hold a table that does not exist (yet).")


def _text(given: object) -> object:
    """A number would be read as seconds since 1970, which nobody means."""
    if not isinstance(given, str):
        raise ValueError("expected a time like 2026-12-24T18:00:00Z")  # noqa: TRY004 - pydantic's way
    return given


def _utc(given: datetime) -> datetime:
    """An end in thousands of years is as good as none, but near the last year there is no other time zone."""
    try:
        return min(given.astimezone(UTC), _FAR)
    except OverflowError:
        return _FAR if given.year > 1 else datetime.min.replace(tzinfo=UTC)


class PauseRequest(ScopeRequest):
    """What is paused, why, and until when."""

    ends_at: Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_text), AfterValidator(_utc)] | None = Field(
        None, description="When the pause ends by itself. Without it: when it is resumed."
    )


class Runs(TypedDict):
    """Some runs, newest first."""

    runs: list[run_document.Run]
    next: Annotated[str | None, Field(description="Give it as `before` for older ones; null when there are none.")]


class Table(run_document.Table):
    """A table that the service knows."""

    next_due: Moment | None


class Tables(TypedDict):
    """Some tables, by name."""

    tables: list[Table]
    next: Annotated[str | None, Field(description="Give it as `after` for more; null when there are none.")]


class Me(TypedDict):
    """The caller."""

    name: str
    role: Annotated[str, Field(description="`read` or `operate`.")]
    tenants: Annotated[list[str], Field(description="Those of the token; `*` for all.")]


class Group(run_document.Tally):
    """Files of a plan that have something in common."""

    name: str


class PlanGroups(TypedDict):
    """What a plan consists of, the most bytes first. Of the directories only the largest 50."""

    by_reason: list[Group]
    by_kind: list[Group]
    by_directory: list[Group]


class Ghosts(TypedDict):
    """What is left of former tables, the largest first. `looked_at` is null if nobody has looked yet."""

    ghosts: list[GhostDocument]
    looked_at: Moment | None


class Batch(TypedDict):
    """One batch of deletions. `state` is `intent` while it is under way, then `done`."""

    number: Count
    state: str
    count: Count
    deleted: Count
    bytes: Count
    already_gone: Count
    failed: Count


class Batches(TypedDict):
    """The batches of a run in their order."""

    batches: list[Batch]


class TableDetail(TypedDict):
    """One table beyond its row in the report."""

    table: str
    next_due: Moment | None
    next_expiry: Annotated[Moment | None, Field(description="With an adaptive cadence; else null.")]
    next_listing: Annotated[Moment | None, Field(description="With an adaptive cadence; else null.")]
    next_because: Annotated[str, Field(description="Why the next cycle starts at that time, in one sentence.")]
    holds: Annotated[list[run_document.Hold], Field(description="All holds that cover the table.")]
    trend: list[lake_report.Day]


class Snapshot(TypedDict):
    """A snapshot or version of a table."""

    id: str
    committed_at: Moment
    expires: Annotated[bool, Field(description="Whether the next run expires it.")]
    why: Annotated[str, Field(description="The rule that keeps it, or a sentence that no rule does.")]
    pins: Annotated[list[str], Field(description="Branches, tags and consumers that keep it.")]


class Snapshots(TypedDict):
    """The newest snapshots of a table, at most 500, as its metadata has them now."""

    table: str
    head: str
    total: Count
    expiring: Count
    skipped: Annotated[str | None, Field(description="Why nothing expires although it could; else null.")]
    snapshots: list[Snapshot]


class RunActions(TypedDict):
    """What a person can do about a run."""

    cancellable: Annotated[bool, Field(description="Whether it is still under way.")]
    approvable: Annotated[bool, Field(description="Whether its plan waits for a person's approval.")]
    restorable: Annotated[bool, Field(description="Whether something that it deleted can still be restored.")]
    advice: Annotated[str | None, Field(description="What a person can do about its refusal.")]


class Setting(TypedDict):
    """One setting as it applies, and the level that sets it."""

    name: str
    value: object
    level: str


class TableSettings(TypedDict):
    """The rules that apply to one table."""

    table: str
    settings: list[Setting]


class Plan(TypedDict):
    """Part of the plan that a run made."""

    run_id: str
    table: str
    head: str
    digest: str
    created_at: Moment
    orphans: plan_document.Orphans
    matching: Annotated[Count, Field(description="Files whose path contains `q`; all of them without it.")]
    next: Annotated[Count | None, Field(description="Give it as `offset` for more; null when there are none.")]


class ReportPage(lake_report.Report):
    """The report with some of its tables."""

    matching: Annotated[Count, Field(description="Tables that match the search.")]
    next: Annotated[Count | None, Field(description="Give it as `offset` for more; null when there are none.")]


class Started(TypedDict):
    """A run that was started or is being cancelled."""

    run_id: str


class Approved(TypedDict):
    """A plan that was approved."""

    run_id: str
    table: str
    digest: str
    approved_by: str
    approved_at: Moment
    expires_at: Moment
    remark: Annotated[
        str | None, Field(description="Why the service will not execute the plan by itself; null if it will.")
    ]


class Paused(TypedDict):
    """One thing that is paused."""

    scope: str
    since: Moment
    ends_at: Moment | None
    by: str | None
    reason: str | None


class Pauses(TypedDict):
    """What is paused now."""

    paused: list[Paused]


class Holds(TypedDict):
    """What is paused, by scope."""

    holds: list[run_document.Hold]
    ended: Annotated[list[run_document.Hold], Field(description="Holds that ended by themselves in the last 7 days.")]


class Health(TypedDict):
    """How the service is."""

    status: Annotated[str, Field(description="`ok` or `failing`.")]
    checks: dict[str, str]
