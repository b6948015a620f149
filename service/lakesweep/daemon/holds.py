"""Tables on which nothing is executed until a person says so: paused ones, and those where something got lost.

Some refusals must outlive their cause. That a tag vanished together with our expiry commit shows in the metadata log
for a while only; the files it pinned must not go when the log has rolled on. So such a run leaves a hold behind.
"""

from __future__ import annotations

import glob
from datetime import datetime

from lakesweep.cleanup.records import Hold, StateStore
from lakesweep.daemon import targets
from lakesweep.model.errors import Refused
from lakesweep.model.run import CleanupRun

LASTING = frozenset({"ref_lost", "ref_unverified"})
"""Refusals that only a person can lift."""

OURSELVES = "lakesweep"


async def refuse_held(state: StateStore, label: str) -> None:
    """Raise Refused while a hold covers the table."""
    for hold in await state.holds():
        if targets.covers(hold.scope, label):
            why = f" ({hold.reason})" if hold.reason else ""
            raise Refused(
                "held",
                f"{label} is held since {hold.since:%Y-%m-%d %H:%M} UTC by {hold.by}{why}; "
                f"`lakesweep resume '{hold.scope}'` lifts the hold",
            )


async def hold_if_lasting(state: StateStore, run: CleanupRun, now: datetime) -> None:
    """Keep a refusal that must not be forgotten."""
    if run.refusal is not None and run.refusal.code in LASTING:
        scope = glob.escape(run.table.label)
        await state.set_hold(Hold(scope=scope, since=now, by=OURSELVES, reason=run.refusal.reason))
