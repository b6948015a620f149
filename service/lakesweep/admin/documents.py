"""The requests and answers of the API, for its OpenAPI document. Runs and tables are those of `model.run_document`.

A field may be added, never renamed or removed: an answer may have more with a later version.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from lakesweep.model import run_document
from lakesweep.model.run_document import Count, Moment

RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", description="A run's id.", examples=["0f" * 16])]
Name = Annotated[str, Field(min_length=1, max_length=1000)]


class Asked(BaseModel):
    """A request. What it does not know is an error: a slip must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RunRequest(Asked):
    """Which table to work on, and whether to change anything."""

    target: Name = Field(description="One configured table: tenant/dataset/table.", examples=["acme/prod/orders"])
    execute: bool = Field(False, description="Really expire and delete. Without it: a dry run.")


class ApprovalRequest(Asked):
    """What is approved."""

    digest: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Digest of the plan that was reviewed. If given, only that plan is approved."
    )


class ScopeRequest(Asked):
    """What is paused, or goes on."""

    scope: Name | None = Field(
        None, description="`*`, a tenant, a dataset or a table. Without it: everything that the token is for."
    )
    reason: Annotated[str, Field(max_length=1000)] | None = Field(None, description="The reason, shown to others.")


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


class Plan(TypedDict):
    """Part of the plan that a run made."""

    run_id: str
    table: str
    head: str
    digest: str
    created_at: Moment
    orphans: run_document.Orphans
    next: Annotated[Count | None, Field(description="Give it as `offset` for more; null when there are none.")]


class Started(TypedDict):
    """A run that was begun or told to end."""

    run_id: str


class Approved(TypedDict):
    """A plan that may go."""

    run_id: str
    table: str
    digest: str
    approved_by: str
    approved_at: Moment
    expires_at: Moment


class Paused(TypedDict):
    """One thing that is paused."""

    scope: str
    since: Moment
    by: str | None
    reason: str | None


class Pauses(TypedDict):
    """What is paused now."""

    paused: list[Paused]


class Health(TypedDict):
    """How the service is."""

    status: Annotated[str, Field(description="`ok` or `failing`.")]
    checks: dict[str, str]
