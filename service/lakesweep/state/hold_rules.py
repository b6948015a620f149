"""Merge a hold with a new one of the same scope, and decide when a hold has ended. Pure.

A pause never ends earlier because somebody else pauses the same tables: of two holds the later end counts, and no end
is the latest. To shorten a hold, lift it first.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from lakesweep.ports.state import Hold

_NEVER = datetime.max.replace(tzinfo=UTC)


def has_ended(hold: Hold, now: datetime) -> bool:
    """A hold without an end never ends by itself."""
    return _end(hold) <= now


def merged(there: Hold | None, new: Hold, now: datetime) -> Hold:
    """The hold of the scope after `new` was requested."""
    if there is None or has_ended(there, now):
        return new
    if there.by_admin != new.by_admin:
        merged = there if there.by_admin else new  # otherwise a tenant could lift it
    else:
        merged = new if _end(new) >= _end(there) else there
    return replace(merged, ends_at=max(there, new, key=_end).ends_at)


def _end(hold: Hold) -> datetime:
    return hold.ends_at or _NEVER
