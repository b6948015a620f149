"""When a table was last listed as a whole, and whether it passed. Keeps a small note in the state store.

Cycles in between go by names alone, and rely on that listing for what only a listing shows: that live files are there,
that no other table lives inside. So only one that passed all guards counts, of the same table in the same place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from lakesweep.ports.state import StateStore
from lakesweep.ports.table import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class LastListing:
    """What is known of it."""

    at: datetime | None = None
    """When it began; None when this table was never listed in this place."""
    passed: bool = False
    """Did no guard refuse the plan that was made from it?"""
    swept_at: datetime | None = None
    """When the last one began whose plan was executed to its end. A listing that was only looked at postpones
    nothing."""


async def recall(store: StateStore, state: TableState) -> LastListing:
    noted = json.loads(await store.recall(_name(state)) or "{}")
    if not noted or noted["uuid"] != state.table_uuid or noted["roots"] != _roots(state):
        return LastListing()
    swept = noted["swept_at"]
    return LastListing(
        at=datetime.fromisoformat(noted["at"]),
        passed=noted["passed"],
        swept_at=datetime.fromisoformat(swept) if swept else None,
    )


async def remember(store: StateStore, state: TableState, *, at: datetime, passed: bool) -> None:
    """There was a newer one."""
    await _write(store, state, replace(await recall(store, state), at=at, passed=passed))


async def remember_swept(store: StateStore, state: TableState, *, at: datetime) -> None:
    """The plan from the listing that began then was executed to its end."""
    await _write(store, state, replace(await recall(store, state), swept_at=at))


async def _write(store: StateStore, state: TableState, listing: LastListing) -> None:
    noted = {
        "uuid": state.table_uuid,
        "roots": _roots(state),
        "at": listing.at.isoformat() if listing.at else None,
        "passed": listing.passed,
        "swept_at": listing.swept_at.isoformat() if listing.swept_at else None,
    }
    await store.remember(_name(state), json.dumps(noted))


def _name(state: TableState) -> str:
    return f"listed:{state.ref.label}"


def _roots(state: TableState) -> list[str]:
    return sorted(root.match_key for root in state.roots)
