"""The JSON documents of runs and tables: one shape for the database, the API, `--json` and the log.

Those of plans are in `plan_document`, those of trash and restores in `trash_document`.

`cleanup.report` builds them, the state store returns them, and the OpenAPI document is generated from these types.
Times are ISO 8601 in UTC, snapshot ids are text, paths are raw. A field may be added, never renamed or removed; a new
field of `Run` also needs a value in `from_storage`, because databases hold documents that lack it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, cast

from typing_extensions import TypedDict  # Pydantic accepts the one of `typing` only from Python 3.12 on

from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName

INTERRUPTED = "interrupted:"
"""Prefix of the reason of a run whose process died."""


class Described:
    """Adds a description to a type in the OpenAPI document. Pydantic finds the method by its name."""

    def __init__(self, **keywords: object) -> None:
        self._keywords = keywords

    def __get_pydantic_json_schema__(
        self, core: object, schema_of: Callable[[object], dict[str, object]]
    ) -> dict[str, object]:
        return {**schema_of(core), **self._keywords}


Count = Annotated[int, Described(minimum=0)]
Moment = Annotated[str, Described(format="date-time")]


class Tally(TypedDict):
    """A number of files and their bytes."""

    count: Count
    bytes: Count


class Deleted(Tally):
    """What was really deleted."""

    by_kind: dict[str, Count]


class Found(Tally):
    """What a plan would delete, by reason."""

    by_reason: dict[str, Tally]


class Retained(TypedDict):
    """Bytes of deleted files that are still stored, by where."""

    trash: Count
    versions: Count


class Store(TypedDict):
    """What the store itself does with deleted objects."""

    versioning: Annotated[str, Described(enum=["off", "on", "suspended", "unknown"])]
    noncurrent_days: Annotated[
        int | None,
        Described(description="Days after which a lifecycle rule frees deleted versions; null: never, or not known."),
    ]
    abort_uploads_days: Annotated[
        int | None, Described(description="Days after which a lifecycle rule removes incomplete uploads; else null.")
    ]


class Refusal(TypedDict):
    """Why nothing was done: a stable code, and a sentence."""

    code: str
    reason: str | None


class EngineChoice(TypedDict):
    """What planned it."""

    kind: str
    why: str


class FailedFile(TypedDict):
    """A file that the store did not delete, and the store's message."""

    path: str
    why: str


class Failed(TypedDict):
    """Files that could not be deleted; the first thousand are named."""

    count: Count
    files: list[FailedFile]


class Missing(TypedDict):
    """Live files missing from storage."""

    count: Count
    files: list[str]
    unverified: Annotated[Count, Described(description="Live files outside the listed places, which were not checked.")]


class Kept(TypedDict):
    """Files that stay, by verdict."""

    live: Count
    young: Count
    reserved: Count
    foreign: Count


class Expense(TypedDict):
    """The cost of a cycle: requests by kind, bytes read, time, and money by the price list `[prices]`."""

    list: Count
    get: Count
    head: Count
    put: Count
    delete: Count
    bytes_read: Count
    seconds: Annotated[float, Described(minimum=0)]
    cost: Annotated[float, Described(minimum=0)]
    currency: str


class Requests(TypedDict):
    """The estimate that was made with the plan, and what the run really sent."""

    planned: Annotated[
        Expense | None,
        Described(description="Estimate for a cycle that executes this plan; null without a plan."),
    ]
    sent: Expense


class SharedFiles(TypedDict):
    """What one other table uses of this table's files: a clone, `add_files`, a table that was moved."""

    table: str
    files: Count
    first: str


class Trash(TypedDict):
    """Where a run's files went, each to `<place>/<run_id>/<its path relative to root>`."""

    place: str
    root: str


class BroughtBack(Tally):
    """What a run restored of the files that the run `run_id` deleted."""

    run_id: str
    already_there: Count
    not_restorable: Count


class Run(TypedDict):
    """One cycle over one table. `outcome` is null until its end."""

    table: str
    format: FormatName
    location: str | None
    run_id: str
    phase: str
    outcome: Outcome | None
    reason: str | None
    refused: Refusal | None
    started_at: Moment
    finished_at: Moment | None
    head: str | None
    engine: EngineChoice | None
    expired_snapshots: list[str]
    expired_partitions: list[str]
    orphans: Found
    deleted: Deleted
    freed_bytes: Annotated[Count, Described(description="Bytes of deleted files that are no longer stored.")]
    retained_bytes: Retained
    store: Store | None
    warnings: list[str]
    already_gone: Count
    failed: Failed
    spared: Count
    kept: Kept
    kept_bytes: Kept
    unconfirmed: Annotated[Tally, Described(description="Files among the young that wait for confirm_after_hours.")]
    missing: Missing
    stream: Annotated[
        str | None,
        Described(description="Why unreferenced files of a table that a stream writes to stay longer; else null."),
    ]
    lent: Annotated[
        list[SharedFiles], Described(description="Other tables that use files of this one, which stay for them.")
    ]
    requests: Requests
    trash: Annotated[
        Trash | None, Described(description="Where files were moved to with deletion = trash; null if it deletes.")
    ]
    table_uuid: Annotated[
        str | None, Described(description="Identity of the table that the run changed; null if it changed none.")
    ]
    listed: Annotated[
        bool,
        Described(
            description="Was the whole table listed? If not, unreferenced and missing files were not looked for."
        ),
    ]
    last_listed_at: Annotated[
        Moment | None, Described(description="When the whole table was last listed, by this run or before it.")
    ]
    listed_because: Annotated[
        str | None, Described(description="Why the table was listed although the run should not list it; else null.")
    ]
    restored: Annotated[
        BroughtBack | None, Described(description="For a run that restores files of another run; else null.")
    ]
    interrupted: Annotated[
        bool, Described(description="Whether the run's process ended before the run did; a later run closed it.")
    ]
    digest: Annotated[str | None, Described(description="Digest of its plan, which `approve` can check.")]


class Hold(TypedDict):
    """Tables that are paused. `by` and `reason` are null for a caller who may not know them."""

    scope: str
    since: Moment
    ends_at: Annotated[Moment | None, Described(description="When it ends by itself. Null: when it is resumed.")]
    by: str | None
    reason: str | None


class Table(TypedDict):
    """A table that is configured or was found, and its last run."""

    table: str
    format: FormatName
    location: str | None
    problem: Annotated[str | None, Described(description="Why it cannot be cleaned, if so.")]
    last_run: Run | None
    estimate: Annotated[
        Expense | None,
        Described(description="Estimate for the next cycle, based on the table's last run; null if there is none."),
    ]
    paused: bool
    next_expiry: Annotated[
        Moment | None, Described(description="When an adaptive cadence expires next; null where the cadence is fixed.")
    ]
    next_listing: Annotated[Moment | None, Described(description="When it lists the whole table next.")]
    cadence: Annotated[str | None, Described(description="The reason for these times, in one sentence.")]


class Explanation(TypedDict):
    """Why one file stays or goes. `verdict` is null if it is not stored."""

    path: str
    table: str
    verdict: str | None
    evidence: list[str]
    deletable_from: Moment | None


NOTHING_SENT: Expense = {
    "list": 0,
    "get": 0,
    "head": 0,
    "put": 0,
    "delete": 0,
    "bytes_read": 0,
    "seconds": 0.0,
    "cost": 0.0,
    "currency": "USD",
}
"""For a run that was recorded before requests were counted."""


def deletable_bytes(last: Run) -> int:
    """What is left to delete after a run: what it found and did not delete, or what it restored."""
    if last["restored"] is not None:
        return last["restored"]["bytes"]
    if last["outcome"] is Outcome.DONE:  # the rest was gone already, or is needed again
        return 0
    return max(0, last["orphans"]["bytes"] - last["deleted"]["bytes"])


def next_cycle(last: Run | None) -> Expense | None:
    """What a table's next cycle costs: what its last run sent, or what it planned if it did not execute."""
    if last is None or last["restored"] is not None:
        return None
    requests = last["requests"]
    return requests["sent"] if last["outcome"] is Outcome.DONE else requests["planned"]


def from_storage(stored: Mapping[str, object]) -> Run:
    """A run from the database, completed with fields that were added after it was written. Unknown fields are kept."""
    later: dict[str, object] = {
        "unconfirmed": {"count": 0, "bytes": 0},
        "stream": None,
        "lent": [],
        "trash": None,
        "table_uuid": None,
        "restored": None,
        "digest": None,
        "requests": {"planned": None, "sent": NOTHING_SENT},
        "retained_bytes": {"trash": 0, "versions": 0},
        "store": None,
        "warnings": [],
        "listed": True,
        "last_listed_at": None,
        "listed_because": None,
        "interrupted": str(stored["reason"] or "").startswith(INTERRUPTED),
    }
    whole = cast("Run", {**stored, **{name: value for name, value in later.items() if name not in stored}})
    whole.setdefault("freed_bytes", whole["deleted"]["bytes"])
    return {
        **whole,
        "format": FormatName(whole["format"]),
        "outcome": Outcome(whole["outcome"]) if whole["outcome"] else None,
        "orphans": {**whole["orphans"], "by_reason": whole["orphans"].get("by_reason", {})},
        "missing": {**whole["missing"], "unverified": whole["missing"].get("unverified", 0)},
    }
