"""Which table is worked on next, and when. Decides; `table_run.py` takes a table's turn, `app.py` runs its cycle.

Due times are in the state store, so that a restarted service goes on where it was and replicas share the work. Turns
are fair between tenants (`limits.py`), times are jittered and back off after failures (`due_times.py`). Whatever
happens to one table stays with that table: its failure is an outcome, and even a bug met on it only delays it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from lakesweep.daemon import due_times, request_budget, targets
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.due_times import Stopped
from lakesweep.daemon.holds import HoldIndex
from lakesweep.daemon.known_tables import Entry, KnownTables
from lakesweep.daemon.limits import Due, FairQueue, share
from lakesweep.daemon.table_run import ScheduledRun, overruled, tend
from lakesweep.model.access import Trigger
from lakesweep.model.errors import NotYet, Refused, StateError, UnknownTable
from lakesweep.ports.state import DueTime, Hold
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

log = structlog.get_logger()

STEP_SECONDS = 2.0
"""The scheduler runs at least this often, whatever it waits for: other replicas and people change the state too."""
REFRESH = timedelta(seconds=10)
"""How old the due times and holds that are kept in memory may be."""

RETRY_SECONDS = 5
"""When a client that requested a table that is not discovered yet may try again."""
MAX_REQUESTS = 100
"""Runs of one tenant that people may have requested and that wait for their turn."""


class Scheduler:
    """`run` until `stop`. Everything else may be asked at any time."""

    def __init__(self, app: App, *, jitter: Callable[[], float] = random.random) -> None:
        self.known_tables = KnownTables(app)
        self.running: dict[str, ScheduledRun] = {}
        self.last_beat: float | None = None
        """When it last looked around, by the event loop's clock."""
        self.last_finished: datetime | None = None
        self._jitter = jitter
        self._turns = FairQueue()
        self._due: dict[str, DueTime] = {}
        self._moments: dict[str, datetime] = {}
        """When each table is due, worked out once from its due time and its schedule."""
        self._look_again_at: dict[str, datetime] = {}
        self._holds = HoldIndex()
        self._reported_paused: set[str] = set()
        self._requests: deque[ScheduledRun] = deque()
        self._refreshed: datetime | None = None
        self._users: Counter[App] = Counter()
        self._retiring: list[App] = []
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def app(self) -> App:
        return self.known_tables.app

    async def run(self) -> None:
        """Work until a stop is requested; then wait for what is running."""
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping:
                await self.step(tasks)
                await self._rest()

    def stop(self) -> None:
        """Start nothing more, and end what is running: plans at once, sweeps after their running batches."""
        self._stopping = True
        for turn in self.running.values():
            turn.end(Stopped.SHUTDOWN)
        self._wake.set()

    async def close(self) -> None:
        """Close the adapters of all settings there were. The state store stays open."""
        for app in (*self._retiring, self.app):
            await app.adapters.aclose()

    def end_covered(self, hold: Hold) -> None:
        for label, turn in self.running.items():
            if targets.covers(hold.scope, label):
                turn.end(Stopped.SHUTDOWN)

    def adopt(self, app: App) -> None:
        """Go on under new settings. A run that changes things under rules that no longer apply ends before its next
        request; a run that only plans finishes under the old ones."""
        for turn in self.running.values():
            if overruled(turn, app.settings):
                log.info("run_overruled", table=turn.entry.label, run=turn.run_id)
                turn.end(Stopped.SHUTDOWN)
        self._retiring.append(self.app)
        self.known_tables.adopt(app)
        self._moments.clear()
        self._wake.set()

    def request(self, table: str, *, execute: bool | None, trigger: Trigger) -> str:
        """Ask for a run of a known table before the tenant's others; its id. Refused while the table is worked on, or
        when too many runs of its tenant wait."""
        entry = self.known_tables.entries.get(table)
        if entry is None:
            if self.known_tables.may_appear(table):
                raise NotYet(f"{table} may exist: the tables of its dataset are not known yet", RETRY_SECONDS)
            raise UnknownTable(f"no table {table} is known")
        if table in self.running or any(waiting.entry.label == table for waiting in self._requests):
            raise Refused("busy", f"{table} is already being worked on")
        tenant = entry.work.ref.tenant
        if sum(waiting.entry.work.ref.tenant == tenant for waiting in self._requests) >= MAX_REQUESTS:
            raise Refused("too_many_requests", f"{MAX_REQUESTS} runs of {tenant} are already queued; try again later")
        turn = ScheduledRun(
            entry=entry,
            run_id=new_run_id(),
            since=self.app.clock.now(),
            requested=True,
            execute=execute,
            trigger=trigger,
        )
        self._requests.append(turn)
        self._wake.set()
        return turn.run_id

    def cancel(self, run_id: str) -> bool:
        """End a run of this process. False if it has none of that id."""
        turn = self.waiting_or_running(run_id)
        if turn is not None:
            turn.end(Stopped.CANCELLED)
        return turn is not None

    def waiting_or_running(self, run_id: str) -> ScheduledRun | None:
        return next((turn for turn in (*self.running.values(), *self._requests) if turn.run_id == run_id), None)

    def due_at(self, table: str) -> datetime | None:
        return self._moments.get(table)

    def invalidate(self) -> None:
        """Somebody changed due times or holds: look at once."""
        self._refreshed = None
        self._wake.set()

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        now = self.app.clock.now()
        self.last_beat = asyncio.get_running_loop().time()
        self.app.metrics.scheduler_step.set(now.timestamp())
        await self._retire()
        for tenant, dataset in self.known_tables.wanted(now):
            tasks.create_task(self._look(self.app, tenant, dataset), name=f"discover {tenant.id}/{dataset.id}")
        if await self._refresh(now):
            self._start(tasks, await self._affordable(now))

    async def _look(self, app: App, tenant: TenantSettings, dataset: DatasetSettings) -> None:
        if app is not self.app:
            return  # other settings came before this look began: they have their own
        self._users[app] += 1
        try:
            await self.known_tables.look(tenant, dataset)
        finally:
            self._users[app] -= 1
            self._wake.set()

    async def _refresh(self, now: datetime) -> bool:
        """Due times and holds as the state store has them. Without it nothing is started."""
        if self._refreshed is not None and timedelta(0) <= now - self._refreshed < REFRESH:
            return True
        try:
            # Later on only what became due: a table that others have put off is found out when it is claimed.
            rows = await self.app.state.due_times(until=now if self._due else None)
            in_force = HoldIndex(await self.app.state.holds())
        except StateError as exc:
            if self._refreshed is not None:
                log.warning("state_store_away", reason=str(exc))
            self._refreshed = None
            self.app.metrics.state_up.set(0)
            return False
        self._log_ended_holds(in_force, now)
        self._holds = in_force
        self.app.metrics.state_up.set(1)
        set_back = [row for row in self._due.values() if row.last_finished and row.last_finished > now]
        for row in set_back + [row for row in rows if self._due.get(row.table) != row]:
            self._learn(row)
        self._refreshed = now
        return True

    def _log_ended_holds(self, in_force: HoldIndex, now: datetime) -> None:
        there = {hold.scope for hold in in_force.holds}
        for hold in self._holds.holds:
            if hold.ends_at is not None and hold.ends_at <= now and hold.scope not in there:
                log.info("hold_ended", scope=hold.scope, since=hold.since, ends_at=hold.ends_at, by=hold.by)

    def _learn(self, row: DueTime) -> None:
        self._due[row.table] = row
        self._moments.pop(row.table, None)

    async def _affordable(self, now: datetime) -> list[Due]:
        """Tables whose time has come, without those that their tenant's budget of requests puts off."""
        due = list(self._waiting(now))
        if all(tenant.requests_per_day is None for tenant in self.app.settings.tenants):
            return due
        try:
            late = await request_budget.postponed(self.app, due, self.running, now)
        except StateError as exc:
            log.warning("state_store_away", reason=str(exc))
            return []
        for table in late:
            self._look_again_at[table] = now + request_budget.LOOK_AGAIN
            self.app.metrics.count_skip(self.known_tables.entries[table].work.ref, request_budget.REASON)
        return [one for one in due if one.table not in late]

    def _start(self, tasks: asyncio.TaskGroup, waiting_now: list[Due]) -> None:
        places = self.app.settings.daemon.max_tables
        requested = {turn.entry.label: turn for turn in self._requests if self._is_current(turn)}
        due = self._one_suspect([one for one in waiting_now if one.table not in requested])
        waiting = Counter(one.tenant for one in due)
        for tenant in self.app.settings.tenants:
            self.app.metrics.tables_due.labels(tenant.id).set(waiting[tenant.id])
        due += [
            Due(tenant=str(turn.entry.work.ref.tenant), table=label, since=turn.since, requested=True)
            for label, turn in requested.items()
        ]
        most = share(places) if len(self.app.settings.tenants) > 1 else places
        for one in self._turns.choose(due, self._running_by_tenant(), places - len(self.running), most):
            if one.requested:
                self._requests.remove(requested[one.table])
                self._begin(tasks, requested[one.table])
            else:
                entry, now = self.known_tables.entries[one.table], self.app.clock.now()
                self._begin(tasks, ScheduledRun(entry=entry, run_id=new_run_id(), since=now))

    def _is_current(self, turn: ScheduledRun) -> bool:
        """Can it begin under the newest settings? They may have changed while it waited."""
        entry = self.known_tables.entries.get(turn.entry.label)
        if turn.entry.app is self.app or entry is not None:
            turn.entry = entry or turn.entry
            return True
        ref = turn.entry.work.ref
        if self.known_tables.not_looked_yet(ref.tenant, ref.dataset):
            return False
        gone = UnknownTable(
            f"{turn.entry.label} is not known under the current settings, which changed after it was requested"
        )
        turn.entry = replace(turn.entry, app=self.app, work=replace(turn.entry.work, table=None, problem=gone))
        return True

    def _waiting(self, now: datetime) -> Iterator[Due]:
        """Tables whose time has come, and that nobody is known to work on."""
        for label, entry in self.known_tables.entries.items():
            if not entry.enabled or label in self.running:
                continue
            moment = self._moments.get(label)
            if moment is None:
                moment = self._moments[label] = due_times.due_at(self._due.get(label), entry.schedule, now)
            if moment > now or self._look_again_at.get(label, now) > now:
                continue
            if self._skips_paused(entry):
                continue
            yield Due(tenant=str(entry.work.ref.tenant), table=label, since=moment)

    def _one_suspect(self, due: list[Due]) -> list[Due]:
        """Of tables whose last run ended with its process, only one runs at a time: whatever kills the process ends all
        runs with it, and next time only one suspect, and tables that are none, should be running."""
        suspects = {label for label, row in self._due.items() if row.last_outcome == due_times.INTERRUPTED}
        if not suspects:
            return due
        waiting = sorted((one for one in due if one.table in suspects), key=lambda one: (one.since, one.table))
        held_up = {one.table for one in (waiting if suspects & self.running.keys() else waiting[1:])}
        return [one for one in due if one.table not in held_up]

    def _skips_paused(self, entry: Entry) -> bool:
        if not self._holds or self._holds.covering(entry.label) is None:
            self._reported_paused.discard(entry.label)
            return False
        if entry.label not in self._reported_paused:
            self._reported_paused.add(entry.label)
            self.app.metrics.count_skip(entry.work.ref, "paused")
        return True

    def _begin(self, tasks: asyncio.TaskGroup, turn: ScheduledRun) -> None:
        self.running[turn.entry.label] = turn
        self._users[turn.entry.app] += 1
        self._count_running(turn)
        tasks.create_task(self._tend(turn), name=f"table {turn.entry.label}")

    async def _tend(self, turn: ScheduledRun) -> None:
        label = turn.entry.label
        try:
            ended = await tend(turn, self._jitter)
            if ended.due is not None:
                self._learn(ended.due)
            if ended.look_again_at is not None:
                self._look_again_at[label] = ended.look_again_at
            else:
                self._look_again_at.pop(label, None)
            if ended.ran:
                self.last_finished = turn.entry.app.clock.now()
        finally:
            del self.running[label]
            self._users[turn.entry.app] -= 1
            self._count_running(turn)
            self._wake.set()

    def _running_by_tenant(self) -> Counter[str]:
        return Counter(str(turn.entry.work.ref.tenant) for turn in self.running.values())

    def _count_running(self, turn: ScheduledRun) -> None:
        tenant = str(turn.entry.work.ref.tenant)
        self.app.metrics.tables_running.labels(tenant).set(self._running_by_tenant()[tenant])

    async def _retire(self) -> None:
        for old in [app for app in self._retiring if not self._users[app]]:
            self._retiring.remove(old)
            del self._users[old]
            await old.adapters.aclose()

    async def _rest(self) -> None:
        """Until something happens, the next table is due, or it is time for the next step."""
        now = self.app.clock.now()
        soon = [moment for moment in self._moments.values() if moment > now]
        next_due = min(soon, default=None)
        seconds = STEP_SECONDS if next_due is None else min(STEP_SECONDS, (next_due - now).total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()
