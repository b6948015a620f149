"""How often a table runs, chosen from what its last runs found, and kept as a small note in the state store. `choose`
is pure: runs in, times and a sentence out.

Bytes become deletable at a rate: some by expiry, which a cycle without a listing deletes, some as files of failed jobs,
which only a listing finds. Whatever waits is waste. Waits T of both kinds cost `requests / T` each, and let `rate * T`
pile up. The least requests under a budget of waste have waits in proportion to sqrt(requests / rate): what is expensive
to look for and grows slowly waits longest. Both stay between the shortest and the longest wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from math import sqrt

from lakesweep.model import run_document
from lakesweep.model.files import Reason
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.ports.state import StateStore

RUNS = 30
"""How many of the last runs are read."""
MOST_RUNS = 400
"""As many, where those are not enough: a table that expires every hour is listed once in many runs."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings say."""

    shortest: timedelta
    longest: timedelta
    waste_budget: float
    """Share of the table's live bytes that may wait to be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run, as far as the cadence goes by it."""

    at: datetime
    listed: bool
    expired_bytes: int = 0
    unreferenced_bytes: int = 0
    live_bytes: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """When a table is looked at next, and why then."""

    next_expiry: datetime
    next_listing: datetime
    why: str

    @property
    def next_look(self) -> datetime:
        """A listing expires too."""
        return min(self.next_expiry, self.next_listing)


def past(runs: Sequence[run_document.Run]) -> list[PastRun]:
    """Those of some runs that ended well, oldest first."""
    found = [_past(run) for run in runs if run["outcome"] in (Outcome.DONE, Outcome.DRY_RUN) and run["finished_at"]]
    return sorted(found, key=lambda run: run.at)


def recent(runs: Sequence[PastRun]) -> Sequence[PastRun]:
    """The last of some runs, and those before them back to the last listing but one."""
    listings = [number for number, run in enumerate(runs) if run.listed][-2:]
    return runs[min([*listings, max(0, len(runs) - RUNS)]) :]


def enough(runs: Sequence[PastRun]) -> bool:
    """Do they show how fast waste grows? That takes two listings."""
    return sum(run.listed for run in runs) > 1


def choose(runs: Sequence[PastRun], rules: Rules, now: datetime, comes_of_age: datetime | None = None) -> Cadence:
    """From runs that ended well, oldest first. `comes_of_age` is when something expires next if nobody commits."""
    listings = [run for run in runs if run.listed]
    if not listings:
        soon = now + rules.shortest
        return Cadence(next_expiry=soon, next_listing=soon, why="it has not been listed yet")
    live, expiring = listings[-1].live_bytes, _rate(runs, "expired_bytes")
    if not enough(runs):
        # What one listing found says nothing of how fast it came; what expires may be known all the same.
        soon = max(now + rules.shortest, listings[0].at + min(_DAY, rules.longest))
        wait = _waits((expiring, 0.0), (1, 1), rules.waste_budget * live, rules)[0]
        sooner = min(soon, now + wait) if expiring else soon
        return Cadence(next_expiry=sooner, next_listing=soon, why="one listing does not show yet how fast waste grows")
    dead = _rate(listings, "unreferenced_bytes")
    looks = [run.requests for run in runs if not run.listed] or [run.requests for run in listings]
    costs = (max(1, sum(looks) / len(looks)), max(1, listings[-1].requests))
    waits = _waits((expiring, dead), costs, rules.waste_budget * live, rules)
    next_expiry = now + waits[0]
    if not expiring and comes_of_age is not None:
        next_expiry = min(max(comes_of_age, now + rules.shortest), now + rules.longest)
    next_listing = max(now + rules.shortest, listings[-1].at + waits[1])
    return Cadence(next_expiry=next_expiry, next_listing=next_listing, why=_why(expiring, dead, live, waits, rules))


def _past(run: run_document.Run) -> PastRun:
    # A dry run finds the same bytes again and again: they say nothing of how fast they come.
    reasons = run["orphans"]["by_reason"] if run["outcome"] is Outcome.DONE else {}
    return PastRun(
        at=datetime.fromisoformat(run["finished_at"] or run["started_at"]),
        listed=run["listed"],
        expired_bytes=reasons.get(Reason.EXPIRED.value, {"bytes": 0, "count": 0})["bytes"],
        unreferenced_bytes=reasons.get(Reason.UNREFERENCED.value, {"bytes": 0, "count": 0})["bytes"],
        live_bytes=run["kept_bytes"]["live"],
        requests=requests_of(run),
    )


def requests_of(run: run_document.Run) -> int:
    sent = run["requests"]["sent"]
    return sent["list"] + sent["get"] + sent["head"] + sent["put"] + sent["delete"]


def _rate(runs: Sequence[PastRun], what: str) -> float:
    """Bytes per day between the first of these runs and the last. The first one found what came before it."""
    if len(runs) < 2:
        return 0.0
    days = max((runs[-1].at - runs[0].at) / _DAY, 1 / 24)
    return float(sum(getattr(run, what) for run in runs[1:])) / days


def _waits(
    rates: tuple[float, float], costs: tuple[float, float], budget: float, rules: Rules
) -> tuple[timedelta, timedelta]:
    total = sum(sqrt(cost * rate) for cost, rate in zip(costs, rates, strict=True))

    def wait(cost: float, rate: float) -> timedelta:
        if not rate:
            return rules.longest
        days = min(budget * sqrt(cost / rate) / total, rules.longest / _DAY)
        return max(rules.shortest, timedelta(days=days))

    return wait(costs[0], rates[0]), wait(costs[1], rates[1])


def _why(expiring: float, dead: float, live: int, waits: tuple[timedelta, timedelta], rules: Rules) -> str:
    if not expiring and not dead:
        return f"nothing became deletable lately, so it waits for up to {_span(rules.longest)}"
    share = f"{(expiring + dead) / live:.2%} of its bytes" if live else "all of its bytes"
    return (
        f"{share} become deletable per day: expiring every {_span(waits[0])} and listing every {_span(waits[1])} "
        f"keeps the waste near {rules.waste_budget:.2%}"
    )


def _span(wait: timedelta) -> str:
    hours = wait / timedelta(hours=1)
    if hours < 1:
        return f"{max(1, round(hours * 60))} min"
    return f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


async def recall(state: StateStore, table: str) -> Cadence | None:
    noted = json.loads(await state.recall(_name(table)) or "{}")
    if not noted:
        return None
    return Cadence(
        next_expiry=datetime.fromisoformat(noted["next_expiry"]),
        next_listing=datetime.fromisoformat(noted["next_listing"]),
        why=noted["why"],
    )


async def choose_after(state: StateStore, run: CleanupRun, rules: Rules | None, now: datetime) -> Cadence | None:
    """After a run: by this one and those before it. None without rules, where the schedule is fixed."""
    label = run.table.label
    if rules is None:
        if await state.recall(_name(label)):
            await state.remember(_name(label), "")
        return None
    documents = await state.list_runs(table=label, limit=RUNS)
    runs: Sequence[PastRun] = past(documents)
    if len(documents) == RUNS and not enough(runs):
        runs = recent(past(await state.list_runs(table=label, limit=MOST_RUNS)))
    chosen = choose(runs, rules, now, run.comes_of_age)
    await _write(state, label, chosen)
    return chosen


async def pull_forward(state: StateStore, table: str, now: datetime) -> None:
    """Somebody says that there is something to see: look now, without a listing."""
    if (known := await recall(state, table)) is not None:
        await _write(state, table, replace(known, next_expiry=now))


async def _write(state: StateStore, table: str, chosen: Cadence) -> None:
    await state.remember(_name(table), json.dumps(asdict(chosen), default=datetime.isoformat))


def _name(table: str) -> str:
    return f"cadence:{table}"
