"""An adaptive cadence: what it chooses, and how it does beside fixed schedules on a whole fleet."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders.cycles import SetClock
from tests.builders.state_records import a_run

from lakesweep.daemon import cadence
from lakesweep.daemon.cadence import PastRun, Rules
from lakesweep.model.files import OrphanPlan, Tally
from lakesweep.model.run import Outcome
from lakesweep.state.memory import MemoryStateStore

NOW = datetime(2026, 11, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RULES = Rules(shortest=HOUR, longest=7 * DAY, waste_budget=0.01)
GIB = 2**30


def runs(*, days: int = 10, expired: int = 0, dead: int = 0, requests: int = 100) -> list[PastRun]:
    """One listing a day."""
    return [
        PastRun(
            at=NOW - (days - number) * DAY,
            listed=True,
            expired_bytes=expired,
            unreferenced_bytes=dead,
            live_bytes=100 * GIB,
            requests=requests,
        )
        for number in range(days + 1)
    ]


def test_a_table_that_was_never_listed_is_listed_soon():
    chosen = cadence.choose([], RULES, NOW)
    assert chosen.next_look == chosen.next_listing == NOW + HOUR


def test_one_listing_gives_no_rate_and_the_next_comes_after_a_day():
    chosen = cadence.choose(runs(days=0, dead=GIB), RULES, NOW)
    assert chosen.next_look == chosen.next_listing == NOW + DAY
    hasty = Rules(shortest=HOUR, longest=6 * HOUR, waste_budget=0.01)
    assert cadence.choose(runs(days=0), hasty, NOW).next_look == NOW + 6 * HOUR


def test_what_expires_every_hour_does_not_wait_for_a_second_listing():
    looks = [PastRun(at=NOW - (29 - hour) * HOUR, listed=False, expired_bytes=GIB) for hour in range(1, 30)]
    listed = PastRun(at=NOW - 30 * HOUR, listed=True, live_bytes=100 * GIB, requests=100)
    assert cadence.choose([listed, *looks], RULES, NOW).next_expiry == NOW + HOUR


def test_a_cadence_below_an_hour_is_explained_in_minutes():
    hasty = Rules(shortest=timedelta(minutes=5), longest=7 * DAY, waste_budget=0.01)
    why = cadence.choose(runs(expired=200 * GIB, dead=200 * GIB), hasty, NOW).why
    assert "expiring every 5 min and listing every 5 min" in why


def a_plan(*, listed: bool) -> OrphanPlan:
    """Of a table without anything to delete."""
    return OrphanPlan(
        head="h",
        cutoff=NOW,
        verdicts={},
        candidates=Tally(),
        by_kind={},
        by_reason={},
        missing=(),
        missing_count=0,
        references=1,
        matched=1,
        listed=listed,
        rows_path="",
        digest="",
        engine="in-process",
    )


async def test_two_listings_count_however_many_looks_came_after_them():
    state = MemoryStateStore(SetClock(NOW))
    for hour in range(60):
        ended = {"finished_at": NOW + hour * HOUR, "outcome": Outcome.DONE, "unchanged": hour > 24}
        plan = None if hour > 24 else a_plan(listed=hour in (0, 24))
        await state.start_run(last := a_run(f"r{hour}", started_at=NOW + hour * HOUR, plan=plan, **ended))
    chosen = await cadence.choose_after(state, last, RULES, NOW + 60 * HOUR)
    assert chosen.next_listing == NOW + 24 * HOUR + RULES.longest


def test_a_table_where_nothing_happens_waits_longest():
    chosen = cadence.choose(runs(), RULES, NOW)
    assert chosen.next_look == NOW + RULES.longest
    assert chosen.why == "nothing became deletable lately, so it waits for up to 7 days"


def test_what_comes_of_age_is_not_slept_through():
    chosen = cadence.choose(runs(), RULES, NOW, comes_of_age=NOW + 30 * HOUR)
    assert chosen.next_look == NOW + 30 * HOUR
    assert cadence.choose(runs(), RULES, NOW, comes_of_age=NOW).next_look == NOW + HOUR


def test_the_bytes_that_wait_stay_under_the_budget():
    """Two GiB a day of a hundred: half a day until one per cent."""
    chosen = cadence.choose(runs(expired=2 * GIB), RULES, NOW)
    assert chosen.next_expiry == NOW + 12 * HOUR
    assert chosen.next_listing == NOW + RULES.longest
    assert chosen.why.startswith("2.00% of its bytes become deletable per day: expiring every 12 h")


def test_what_is_dear_to_look_for_is_looked_for_less_often():
    cheap, dear = (cadence.choose(runs(expired=GIB, dead=GIB, requests=number), RULES, NOW) for number in (10, 10_000))
    assert dear.next_listing >= cheap.next_listing
    looks = [PastRun(at=NOW - HOUR, listed=False, requests=30, live_bytes=0)]
    mixed = cadence.choose([*runs(expired=GIB, dead=GIB, requests=10_000), *looks], RULES, NOW)
    assert mixed.next_expiry - NOW < mixed.next_listing - NOW


@pytest.mark.parametrize("expired", [0, 1, GIB, 10**4 * GIB])
@pytest.mark.parametrize("dead", [0, 1, GIB, 10**4 * GIB])
def test_every_wait_is_between_the_shortest_and_the_longest(expired, dead):
    chosen = cadence.choose(runs(expired=expired, dead=dead), RULES, NOW)
    for moment in (chosen.next_expiry, chosen.next_listing):
        assert NOW + RULES.shortest <= moment <= NOW + RULES.longest


# A fleet, replayed.


@dataclass
class Table:
    """Bytes become deletable at steady rates per day; a look takes what there is to take."""

    live: int
    objects: int
    expiring: float
    dying: float
    waiting: list[float] = field(default_factory=lambda: [0.0, 0.0])
    past: list[PastRun] = field(default_factory=list)
    requests: int = 0
    waste: float = 0.0
    """Byte days."""

    def wait(self, span: timedelta) -> None:
        days = span / DAY
        for kind, rate in enumerate((self.expiring, self.dying)):
            self.waste += days * (self.waiting[kind] + rate * days / 2)
            self.waiting[kind] += rate * days

    def look(self, now: datetime, *, listed: bool) -> None:
        busy = self.waiting[0] > 0
        cost = 30 + self.objects // 1000 if listed else (30 if busy else 3)
        expired, dead = int(self.waiting[0]), int(self.waiting[1]) if listed else 0
        self.past.append(
            PastRun(
                at=now,
                listed=listed,
                expired_bytes=expired,
                unreferenced_bytes=dead,
                live_bytes=self.live if listed else 0,
                requests=cost,
            )
        )
        self.requests += cost
        self.waiting = [0.0, 0.0 if listed else self.waiting[1]]


def fleet(seed: int) -> list[Table]:
    """A thousand tables, fifty of them busy, by Zipf's law."""
    dice = random.Random(seed)
    tables = []
    for rank in range(1, 1001):
        objects = dice.choice((2_000, 20_000, 200_000))
        live = objects * 2**25
        busy = 0.2 / rank * live if rank <= 50 else 0.0
        tables.append(Table(live=live, objects=objects, expiring=busy, dying=busy / 20))
    return tables


def replay(tables: list[Table], interval: timedelta | None, days: int = 60) -> tuple[int, float]:
    """Requests, and the mean share of live bytes that waited. None is adaptive."""
    for table in tables:
        now, end = NOW, NOW + days * DAY
        table.look(now, listed=True)
        while now < end:
            if interval is None:
                chosen = cadence.choose(cadence.recent(table.past), RULES, now)
                then = min(end, chosen.next_look)
                listed = chosen.next_listing <= then
            else:
                then, listed = min(end, now + interval), True
            table.wait(then - now)
            now = then
            table.look(now, listed=listed)
    live = sum(table.live for table in tables)
    return sum(table.requests for table in tables), sum(table.waste for table in tables) / days / live


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fleet_has_no_more_waste_at_a_fifth_of_the_requests(seed):
    requests, waste = replay(fleet(seed), None)
    daily, daily_waste = replay(fleet(seed), DAY)
    hourly, _ = replay(fleet(seed)[:60], HOUR, days=4)
    own, _ = replay(fleet(seed)[:60], None, days=4)
    print(f"adaptive {requests} {waste:.4%}, daily {daily} {daily_waste:.4%}, hourly {hourly} against {own}")
    assert waste <= daily_waste
    assert 5 * requests <= daily
    assert 5 * own <= hourly
