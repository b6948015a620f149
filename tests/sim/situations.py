"""Situations that have to come up in a campaign, or it proves too little."""

from __future__ import annotations

from collections import Counter

STORIES = 1000
"""In so many stories all of them have to come up."""

_PHASES = ("listing", "listed", "planned", "sweeping")
_COMMON = (
    *(f"a writer's step while {phase}" for phase in _PHASES),
    "fault before storage.delete",
    "fault after storage.delete",
    "fault after storage.put",
    "fault before storage.list",
    "kill before storage.delete",
    "kill after storage.delete",
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


def missing(format: str, seen: Counter[str]) -> list[str]:
    """Those that never came up."""
    return [name for name in REQUIRED[format] if not seen[name]]
