"""The JSON document of `lakesweep report` and `GET /api/v1/report`: what all tables hold, and what could go.

A field may be added, never renamed or removed. Bytes and files are those of each table's newest plan, less what has
been deleted since; `last_planned_at` says how old that is."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from lakesweep.model.ghost import GhostDocument
from lakesweep.model.run_document import Count, Described, Moment, Tally
from lakesweep.model.store_rules import LeftoverKind

Money = Annotated[
    float | None, Described(description="What the waste costs in a month, by `[prices]`; null without a price.")
]


class Figures(TypedDict):
    """Bytes or files, by what becomes of them."""

    live: Count
    young: Count
    reserved: Count
    orphan: Count
    expired: Count
    foreign: Count


FIGURES: tuple[Literal["live", "young", "reserved", "orphan", "expired", "foreign"], ...] = (
    "live", "young", "reserved", "orphan", "expired", "foreign",
)  # fmt: skip


class Leftovers(TypedDict):
    """What is stored beside the files of tables. Null: not counted; `leftover_counts` has the reason."""

    trash: Annotated[Tally | None, Described(description="Deleted by runs, and kept until the trash is emptied.")]
    noncurrent_versions: Annotated[
        Tally | None, Described(description="Deleted or overwritten in a bucket that keeps versions.")
    ]
    incomplete_uploads: Annotated[
        Tally | None, Described(description="Multipart uploads that nobody has completed or aborted.")
    ]
    bytes: Annotated[Count, Described(description="All of them together, as far as they were counted.")]
    cost_per_month: Annotated[float | None, Described(description="What they cost in a month; null without a price.")]


class LeftoverCount(TypedDict):
    """How one kind of leftovers was counted below one tenant's root, the last time that somebody did."""

    tenant: str
    kind: Annotated[LeftoverKind, Described(description="trash, noncurrent_versions or incomplete_uploads.")]
    counted_at: Moment
    found: Annotated[Tally | None, Described(description="Null: not counted, for the reason in `problem`.")]
    complete: Annotated[bool, Described(description="Whether everything was counted.")]
    problem: Annotated[str | None, Described(description="Why it was not counted, or why counting stopped.")]
    requests: Annotated[Count, Described(description="Requests that counting took.")]
    removed_after_days: Annotated[
        Count | None,
        Described(description="Days after which the bucket's own lifecycle rule removes them; null without one."),
    ]
    advice: Annotated[str | None, Described(description="What a person can do about them.")]


class InTheWay(TypedDict):
    """What stands in the way of cleaning a table."""

    code: Annotated[
        str,
        Described(description="A refusal's code, or: unreadable, failed, paused, never_planned, disabled, dry_run."),
    ]
    advice: Annotated[str | None, Described(description="What a person can do about it.")]
    needs_person: Annotated[bool, Described(description="Whether it stays like this until a person acts.")]
    approvable: Annotated[bool, Described(description="Whether a person can approve the plan of `last_run_id`.")]
    scope: Annotated[str | None, Described(description="Of a paused table: the scope to resume.")]


class ReportTable(TypedDict):
    """One table. `bytes` and `files` are null until it was planned once."""

    table: str
    format: str
    location: str | None
    bytes: Figures | None
    files: Figures | None
    waste_bytes: Annotated[Count, Described(description="Bytes that could be deleted: orphan and expired.")]
    cost_per_month: Money
    last_planned_at: Moment | None
    last_run_id: str | None
    last_outcome: str | None
    problem: Annotated[str | None, Described(description="Why it is not cleaned, as a sentence.")]
    why: Annotated[InTheWay | None, Described(description="The same, for programs.")]
    leftovers: Annotated[
        Leftovers | None, Described(description="What else is stored below its roots; null until counted.")
    ]


class Part(TypedDict):
    """All tables of a tenant or dataset."""

    name: str
    tables: Count
    bytes: Figures
    files: Figures
    waste_bytes: Count
    cost_per_month: Money
    freed_bytes_30_days: Count
    retained_bytes_30_days: Annotated[
        Count, Described(description="Deleted in 30 days, and kept in a trash or as versions by a bucket.")
    ]
    leftovers: Annotated[Leftovers | None, Described(description="What else is stored there; null until counted.")]
    unclaimed: Annotated[
        Leftovers | None,
        Described(description="Of these, what is below no table's root and, of a tenant, below no dataset's place."),
    ]


class Day(TypedDict):
    """The end of one day."""

    date: str
    waste_bytes: Annotated[Count, Described(description="What could have been deleted then.")]
    freed_bytes: Annotated[Count, Described(description="What was freed that day.")]


class Totals(TypedDict):
    """Everything together."""

    tables: Count
    planned: Annotated[Count, Described(description="Tables that were planned at least once.")]
    bytes: Figures
    files: Figures
    waste_bytes: Count
    cost_per_month: Money
    deleted_bytes_30_days: Count
    freed_bytes_30_days: Annotated[Count, Described(description="Of these, bytes that are no longer stored.")]
    retained_bytes_30_days: Annotated[
        Count, Described(description="Of these, bytes in a trash or kept as versions by a bucket.")
    ]
    oldest_plan_at: Moment | None
    ghosts: Annotated[
        Tally, Described(description="Files of former tables, as of `ghosts_looked_at`; not part of `waste_bytes`.")
    ]
    former_tables: Annotated[
        Count, Described(description="Directories that `ghosts` counts; the list has the 200 largest of each tenant.")
    ]
    problems: Annotated[dict[str, Count], Described(description="Number of tables by the code in `why`.")]
    leftovers: Annotated[
        Leftovers | None, Described(description="What is stored beside the tables' files; not part of `waste_bytes`.")
    ]


class Report(TypedDict):
    """The whole lake, the most wasteful first."""

    generated_at: Moment
    currency: str
    totals: Totals
    tenants: list[Part]
    datasets: list[Part]
    tables: list[ReportTable]
    trend: list[Day]
    ghosts: Annotated[
        list[GhostDocument], Described(description="Directories of former tables, as of the last search.")
    ]
    ghosts_looked_at: Moment | None
    leftover_counts: Annotated[
        list[LeftoverCount], Described(description="By tenant and kind; empty until `report --fresh` has counted.")
    ]
