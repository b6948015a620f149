"""The JSON documents of trash and restores: `trash --json`, `restore --json` and the API. The rules are those of
`run_document`."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict  # Pydantic accepts the one of `typing` only from Python 3.12 on

from lakesweep.model.run_document import Count, Described, FailedFile, Moment, Tally


class NotRestorable(TypedDict):
    """Files that cannot be restored; the first thousand are named with the reason."""

    count: Count
    files: list[FailedFile]


class Restoration(TypedDict):
    """`restore --json`: the result for everything that the run `run_id` deleted."""

    run_id: str
    restored: Tally
    already_there: Annotated[
        Count, Described(description="Files whose address already exists: nothing is overwritten.")
    ]
    not_restorable: NotRestorable
    paused: Annotated[bool, Described(description="Whether the table is paused, so that nothing is deleted again.")]


class TrashRun(Tally):
    """What one run moved to the trash and is still there."""

    run_id: str
    table: str
    moved_at: Annotated[Moment | None, Described(description="When the run ended; null while it is under way.")]
    until: Annotated[
        Moment | None, Described(description="When its files may be deleted; null while the run is under way.")
    ]


class TrashPlace(TypedDict):
    """One tenant's trash in one place."""

    tenant: str
    place: str
    runs: list[TrashRun]
    foreign: Annotated[Tally, Described(description="What no known run moved there: never deleted.")]
