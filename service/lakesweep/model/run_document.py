"""The JSON documents of runs and plans: one shape for the database, the API, `--json` and the log.

`cleanup.report` builds them, the state store gives them back, and the OpenAPI document is generated from these types.
Times are ISO 8601 in UTC, snapshot ids are text, paths are raw. A field may be added, never renamed or removed; a new
field of `Run` also needs a value in `from_storage`, because databases hold documents that lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, cast

from typing_extensions import TypedDict  # Pydantic reads the one of `typing` from Python 3.12 on only

from lakesweep.model.files import Reason
from lakesweep.model.run import Outcome
from lakesweep.model.table import FormatName

INTERRUPTED = "interrupted:"
"""Begins the reason of a run whose process ended."""


class Described:
    """What the OpenAPI document says of a type beyond its name. Pydantic finds the method by its name."""

    def __init__(self, **keywords: object) -> None:
        self._keywords = keywords

    def __get_pydantic_json_schema__(
        self, core: object, schema_of: Callable[[object], dict[str, object]]
    ) -> dict[str, object]:
        return {**schema_of(core), **self._keywords}


Count = Annotated[int, Described(minimum=0)]
Moment = Annotated[str, Described(format="date-time")]


class Tally(TypedDict):
    """So many files, so many bytes."""

    count: Count
    bytes: Count


class Deleted(Tally):
    """What was really deleted."""

    by_kind: dict[str, Count]


class Refusal(TypedDict):
    """Why nothing was done: a stable code, and a sentence."""

    code: str
    reason: str | None


class EngineChoice(TypedDict):
    """What planned it."""

    kind: str
    why: str


class FailedFile(TypedDict):
    """A file that the store would not delete, and what it said."""

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
    unverified: Annotated[
        Count, Described(description="Live files that lie outside the listed places and were not looked for.")
    ]


class Kept(TypedDict):
    """Files that stay, by verdict."""

    live: Count
    young: Count
    reserved: Count
    foreign: Count


class Lent(TypedDict):
    """What one other table uses of this table's files: a clone, `add_files`, a table that was moved."""

    table: str
    files: Count
    first: str


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
    orphans: Tally
    deleted: Deleted
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
    lent: Annotated[list[Lent], Described(description="Other tables that use files of this one, which stay for them.")]
    interrupted: Annotated[
        bool, Described(description="Whether the run's process ended before the run did; a later run closed it.")
    ]


class Table(TypedDict):
    """A table that is configured or was found, and its last run."""

    table: str
    format: FormatName
    location: str | None
    problem: Annotated[str | None, Described(description="Why it cannot be worked on, if so.")]
    last_run: Run | None
    paused: bool


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
    unconfirmed: Tally
    missing: Missing
    stream: str | None
    lent: list[Lent]
    engine: EngineChoice | None
    refused: Refusal | None


def from_storage(stored: Mapping[str, object]) -> Run:
    """A run as a database holds it, with the fields that came after it was written. What is not known here stays."""
    later: dict[str, object] = {
        "unconfirmed": {"count": 0, "bytes": 0},
        "stream": None,
        "lent": [],
        "interrupted": str(stored["reason"] or "").startswith(INTERRUPTED),
    }
    whole = cast("Run", {**stored, **{name: value for name, value in later.items() if name not in stored}})
    return {
        **whole,
        "format": FormatName(whole["format"]),
        "outcome": Outcome(whole["outcome"]) if whole["outcome"] else None,
        "missing": {**whole["missing"], "unverified": whole["missing"].get("unverified", 0)},
    }
