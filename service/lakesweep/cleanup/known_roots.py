"""Is a table where it has always been? Files in a place that is new to it may belong to somebody else.

A place is a table's own if a cycle has cleaned it there before, or if all of its own history was written there. The
roots are remembered once a run has ended well; those of a new place only after a person approved a plan for it, or if
the table names everything there.

Likewise a history only moves forward: a log that ends before the point that an earlier run has seen was rolled back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakesweep.model.files import OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import Refusal
from lakesweep.ports.state import StateStore
from lakesweep.ports.table import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRoots:
    """What the state store knows of one table's places."""

    store: StateStore

    async def new_place(self, state: TableState) -> str | None:
        """Why the table's place is not proven to be its own; None if it is."""
        noted = json.loads(await self.store.recall(_name(state)) or "{}")
        if noted and noted["uuid"] == state.table_uuid:
            strange = [root.raw for root in state.roots if root.match_key not in noted["roots"]]
            return f"it has never been cleaned at {strange[0]}" if strange else None
        return f"its own history was written elsewhere ({state.moved_from})" if state.moved_from else None

    async def set_back(self, state: TableState) -> Refusal | None:
        """Refused if an earlier run saw this same table at a later version. Checked once: the hold that follows
        remembers it, and a person who lifts the hold has decided."""
        if state.position is None:
            return None
        name = f"position:{state.ref.label}"
        noted = json.loads(await self.store.recall(name) or "{}")
        seen = noted.get("position", -1) if noted.get("uuid") == state.table_uuid else -1
        await self.store.remember(name, json.dumps({"uuid": state.table_uuid, "position": state.position}))
        if seen <= state.position:
            return None
        return Refusal(
            code="log_set_back",
            reason=f"the newest version is {state.position}, but an earlier run saw version {seen}: the log was rolled "
            "back or restored from a backup, and files of the lost versions would be deleted. Restore the log, or "
            "`lakesweep resume` the table if those versions are not needed",
        )

    async def remember(self, state: TableState) -> None:
        roots = sorted(root.match_key for root in state.roots)
        await self.store.remember(_name(state), json.dumps({"uuid": state.table_uuid, "roots": roots}))


def holds_only_its_own(plan: OrphanPlan) -> bool:
    """Does the table name everything that was listed, now or until now?"""
    strange = plan.verdicts.get(Verdict.YOUNG, Tally()) + plan.by_reason.get(Reason.UNREFERENCED, Tally())
    return not (strange + plan.unconfirmed).files


def _name(state: TableState) -> str:
    return f"roots:{state.ref.label}"
