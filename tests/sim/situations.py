"""Situations that have to come up in a campaign, or it proves too little."""

from __future__ import annotations

from collections import Counter

STORIES = 1000
"""In so many stories those that are not rare have to come up."""
MANY = 10_000
"""In so many, all of them."""

_PHASES = ("listing", "listed", "planned", "sweeping")
_COMMON = (
    *(f"a writer's step while {phase}" for phase in _PHASES),
    "fault before storage.delete",
    "fault after storage.delete",
    "fault after storage.put",
    "fault before storage.list",
    "kill before storage.delete",
    "kill after storage.delete",
)
_RARE = (
    "fault after state.begin_batch",
    "fault before state.finish_batch",
    "kill after state.begin_batch",
    "kill before state.finish_batch",
    "the process stands still before storage.delete",
)
_RARE_OF: dict[str, tuple[str, ...]] = {
    "iceberg": (
        "add an old path again, during a cycle",
        "a neighbour uses our files, during a cycle",
        "a file is named by an address that nobody here knows",
        "the catalog answers with more than its metadata file has",
    ),
    "delta": ("restore, during a cycle", "clone, during a cycle"),
    "paimon": ("roll_back_far, during a cycle", "a live file is missing", "the product dropped partitions"),
}
REQUIRED: dict[str, tuple[str, ...]] = {
    "iceberg": (
        *_COMMON,
        "a writer's step while committed",
        "fault before catalog.commit",
        "fault after catalog.commit",
        "kill before catalog.commit",
        "kill after catalog.commit",
        "an expiry overtaken by a change of retention or refs",
    ),
    "delta": _COMMON,
    "paimon": _COMMON,
}


_OTHER_WAYS = (
    "a cycle without a listing",
    "a cycle without a listing, and something came between",
    "a plan without a listing was compared",
    "a run was taken back",
    "a page of a listing came twice",
    "fault before storage.copy",
    "fault after storage.copy",
    "kill after storage.copy",
)
"""Where stories draw other ways to run the product: see ways.py."""
_CLIENT = ("a metadata file whose commit lost the race", "fault before catalog.pointer")


_WIDER: dict[str, tuple[str, ...]] = {
    "iceberg": (
        "another table came by the same name",
        "a stream showed itself that had written before",
        "the product wrote a snapshot log",
        "move to a used place, during a cycle",
        "another format moves in, during a cycle",
        "a table of another catalog moves in, during a cycle",
        "write a negative retention, during a cycle",
    ),
    "delta": (
        "a commit was replaced by another of its version",
        "a person removed a checkpoint",
        "Iceberg metadata takes dead files back",
        "a commit is not listed",
        "a log was set back, and its hint with it",
    ),
    "paimon": (
        "a rollback to any snapshot, and commits on top of it",
        "a consumer of a snapshot that was just closed",
        "a snapshot is not listed",
        "a manifest list is lost",
        "the product dropped partitions",
    ),
}
"""In stories of a wider world: see profiles.py. They also draw other ways to run the product, less often."""


_AT_ANY_CALL = (
    "a page of a listing ended early",
    "fault before storage.stat",
    "fault before state.recall",
    "fault after state.remember",
    "kill before state.remember",
)
"""From seed 30,000,000 on: see anywhere.py."""


def missing(
    format: str,
    seen: Counter[str],
    stories: int,
    *,
    other_ways: bool = False,
    wider: bool = False,
    at_any_call: bool = False,
) -> list[str]:
    """Those that never came up, of those that have to in so many stories."""
    wanted = REQUIRED[format] if stories >= STORIES else ()
    if stories >= MANY:
        wanted = (*wanted, *_RARE, *_RARE_OF[format])
    if stories >= STORIES and wider:
        wanted = (*wanted, *_WIDER.get(format, ()))
    if stories >= (MANY if wider else STORIES) and other_ways:
        wanted = (*wanted, *_OTHER_WAYS, *(_CLIENT if format == "iceberg" else ()))
    if stories >= STORIES and at_any_call:
        wanted = (*wanted, *_AT_ANY_CALL)
    return [name for name in wanted if not seen[name]]
