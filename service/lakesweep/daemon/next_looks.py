"""The adaptive cadence of each table, as it was last chosen: a small note in the state store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypedDict

from lakesweep.cleanup import report
from lakesweep.daemon import cadence
from lakesweep.daemon.cadence import Cadence
from lakesweep.daemon.due_times import Schedule
from lakesweep.model.run import CleanupRun
from lakesweep.ports.state import StateStore


async def recall(state: StateStore, table: str) -> Cadence | None:
    noted = json.loads(await state.recall(_name(table)) or "{}")
    if not noted:
        return None
    return Cadence(
        next_expiry=datetime.fromisoformat(noted["next_expiry"]),
        next_listing=datetime.fromisoformat(noted["next_listing"]),
        why=noted["why"],
    )


class Document(TypedDict):
    """The cadence of a table in JSON documents."""

    next_expiry: str | None
    next_listing: str | None
    cadence: str | None


def document(chosen: Cadence | None) -> Document:
    """All null where the cadence is fixed."""
    if chosen is None:
        return {"next_expiry": None, "next_listing": None, "cadence": None}
    return {
        "next_expiry": report.iso_utc(chosen.next_look),
        "next_listing": report.iso_utc(chosen.next_listing),
        "cadence": chosen.why,
    }


async def choose(state: StateStore, run: CleanupRun, schedule: Schedule, now: datetime) -> Cadence | None:
    """After a run: by this one and those before it. None where the schedule is fixed."""
    label = run.table.label
    if schedule.adaptive is None:
        if await state.recall(_name(label)):
            await state.remember(_name(label), "")
        return None
    runs = await _past(state, label)
    chosen = cadence.choose(runs, schedule.adaptive, now, run.comes_of_age)
    await _write(state, label, chosen)
    return chosen


async def _past(state: StateStore, table: str) -> Sequence[cadence.PastRun]:
    documents = await state.list_runs(table=table, limit=cadence.RUNS)
    runs = cadence.past(documents)
    if len(documents) < cadence.RUNS or cadence.enough(runs):
        return runs
    return cadence.recent(cadence.past(await state.list_runs(table=table, limit=cadence.MOST_RUNS)))


async def pull_forward(state: StateStore, table: str, now: datetime) -> None:
    """Somebody says that there is something to see: look now, without a listing."""
    if (known := await recall(state, table)) is not None:
        await _write(state, table, replace(known, next_expiry=now))


async def _write(state: StateStore, table: str, chosen: Cadence) -> None:
    noted = {
        "next_expiry": chosen.next_expiry.isoformat(),
        "next_listing": chosen.next_listing.isoformat(),
        "why": chosen.why,
    }
    await state.remember(_name(table), json.dumps(noted))


def _name(table: str) -> str:
    return f"cadence:{table}"
