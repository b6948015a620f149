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


def missing(format: str, seen: Counter[str], stories: int) -> list[str]:
    """Those that never came up, of those that have to in so many stories."""
    wanted = (*(REQUIRED[format] if stories >= STORIES else ()), *(_RARE if stories >= MANY else ()))
    return [name for name in wanted if not seen[name]]
