"""What cycles note of a table in the state store: its places, how far its history has come, and its last listing.

A place is a table's own if a cycle has cleaned it there before, or if all of its own history was written there. The
roots are remembered once a run has ended well; those of a new place only after a person approved a plan for it, or if
the table names everything there. Likewise a history only moves forward: a log that ends before the point that an
earlier run has seen was rolled back.

Cycles without a listing rely on the last one for what only a listing shows: that live files are there, that no other
table lives inside. So only one that passed all guards counts, of the same table in the same place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lakesweep.model.files import OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Refusal
from lakesweep.ports.state import StateStore
from lakesweep.ports.table import TableState


async def new_place(store: StateStore, state: TableState) -> str | None:
    """Why the table's place is not proven to be its own; None if it is."""
    noted = await _noted(store, "roots", state)
    if noted:
        strange = [root.raw for root in state.roots if root.match_key not in noted["roots"]]
        return f"it has never been cleaned at {strange[0]}" if strange else None
    return f"its own history was written elsewhere ({state.moved_from})" if state.moved_from else None


async def remember_roots(store: StateStore, state: TableState) -> None:
    await _note(store, "roots", state, roots=_roots(state))


async def set_back(store: StateStore, state: TableState) -> Refusal | None:
    """Refuse if an earlier run saw this same table at a later version, until the table is on hold because of that
    (`accept_set_back`). Lifting the hold is a person's decision to continue."""
    if state.position is None:
        return None
    seen = (await _noted(store, "position", state)).get("position", -1)
    if seen <= state.position:
        await _note(store, "position", state, position=state.position)
        return None
    await _note(store, "position", state, position=seen, found=state.position)
    return Refusal(
        code=RefusalCode.LOG_SET_BACK,
        reason=f"the newest version is {state.position}, but an earlier run saw version {seen}: the log was rolled "
        "back or restored from a backup, and files of the lost versions would be deleted. Restore the log, or "
        "`lakesweep resume` the table if those versions are not needed",
    )


async def accept_set_back(store: StateStore, table: str) -> None:
    """Accept the earlier version, once the table is on hold because its log was set back. When a person lifts the hold,
    cleaning continues from there. The hold must be stored first: otherwise a crash in between would leave no hold,
    and the next run would see nothing wrong."""
    name = f"position:{table}"
    noted = json.loads(await store.recall(name) or "{}")
    if "found" in noted:
        await store.remember(name, json.dumps({"uuid": noted["uuid"], "position": noted["found"]}))


async def remember_closing_note(store: StateStore, table: str, closing_note: str) -> None:
    """What a sweep is about to close; empty once it has ended well."""
    await store.remember(f"closing:{table}", closing_note)


async def closing_note(store: StateStore, table: str) -> str:
    return await store.recall(f"closing:{table}") or ""


def holds_only_its_own(plan: OrphanPlan) -> bool:
    """Does the table name everything that was listed, now or until now?"""
    strange = plan.verdicts.get(Verdict.YOUNG, Tally()) + plan.by_reason.get(Reason.UNREFERENCED, Tally())
    return not (strange + plan.unconfirmed).files


@dataclass(frozen=True, slots=True, kw_only=True)
class LastListing:
    """The last listing of the whole table."""

    at: datetime | None = None
    """When it began; None when this table was never listed in this place."""
    passed: bool = False
    """Did no guard refuse the plan that was made from it?"""
    swept_at: datetime | None = None
    """When the last one began whose plan was executed to its end. A listing that was not executed postpones nothing."""


async def last_listing(store: StateStore, state: TableState) -> LastListing:
    noted = await _noted(store, "listed", state)
    if not noted or noted["roots"] != _roots(state):
        return LastListing()
    at, swept_at = (datetime.fromisoformat(text) if text else None for text in (noted["at"], noted["swept_at"]))
    return LastListing(at=at, passed=noted["passed"], swept_at=swept_at)


async def remember_listing(store: StateStore, state: TableState, *, at: datetime, passed: bool) -> None:
    await _note_listing(store, state, replace(await last_listing(store, state), at=at, passed=passed))


async def remember_swept(store: StateStore, state: TableState, *, at: datetime) -> None:
    """The plan from the listing that began then was executed to its end."""
    await _note_listing(store, state, replace(await last_listing(store, state), swept_at=at))


async def _note_listing(store: StateStore, state: TableState, listing: LastListing) -> None:
    at, swept_at = (moment.isoformat() if moment else None for moment in (listing.at, listing.swept_at))
    await _note(store, "listed", state, roots=_roots(state), at=at, passed=listing.passed, swept_at=swept_at)


async def _noted(store: StateStore, what: str, state: TableState) -> dict[str, Any]:
    """Empty if nothing was noted of this very table."""
    noted: dict[str, Any] = json.loads(await store.recall(f"{what}:{state.ref.label}") or "{}")
    return noted if noted and noted.get("uuid") == state.table_uuid else {}


async def _note(store: StateStore, what: str, state: TableState, **values: object) -> None:
    await store.remember(f"{what}:{state.ref.label}", json.dumps({"uuid": state.table_uuid, **values}))


def _roots(state: TableState) -> list[str]:
    return sorted(root.match_key for root in state.roots)
