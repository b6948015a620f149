"""Which table is worked on next. Decides; `table_run.py` runs one table, `app.py` runs its cycle.

Due times are in the state store, so that a restarted service goes on where it was and replicas share the work. Turns
are fair between tenants (`limits.py`), times are jittered and back off after failures (`due_times.py`). Whatever
happens to one table stays with that table: its failure is an outcome, and even a bug met on it only delays it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import structlog

from lakesweep.daemon import request_budget, targets
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.due_tables import DueTables
from lakesweep.daemon.due_times import Stopped
from lakesweep.daemon.known_tables import Entry, KnownTables
from lakesweep.daemon.limits import Due, FairQueue, share
from lakesweep.daemon.table_run import ScheduledRun, overruled, run_scheduled
from lakesweep.model.access import Trigger
from lakesweep.model.errors import NotYet, Refused, StateError, UnknownTable
from lakesweep.model.refusal import RefusalCode
from lakesweep.ports.state import Hold
from lakesweep.settings.tenants import DatasetSettings, TenantSettings

log = structlog.get_logger()

STEP_SECONDS = 2.0
"""The scheduler runs at least this often, whatever it waits for: other replicas and people change the state too."""
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
        self._due = DueTables(self.known_tables)
        self._reported_paused: set[str] = set()
        self._requests: deque[ScheduledRun] = deque()
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
        for scheduled in self.running.values():
            scheduled.end(Stopped.SHUTDOWN)
        self._wake.set()

    async def close(self) -> None:
        """Close the adapters of all settings there were. The state store stays open."""
        for app in (*self._retiring, self.app):
            await app.adapters.aclose()

    def end_covered(self, hold: Hold) -> None:
        for label, scheduled in self.running.items():
            if targets.covers(hold.scope, label):
                scheduled.end(Stopped.SHUTDOWN)

    def adopt(self, app: App) -> None:
        """Go on under new settings. A run that changes things under rules that no longer apply ends before its next
        request; a run that only plans finishes under the old ones."""
        for scheduled in self.running.values():
            if overruled(scheduled, app.settings):
                log.info("run_overruled", table=scheduled.entry.label, run=scheduled.run_id)
                scheduled.end(Stopped.SHUTDOWN)
        self._retiring.append(self.app)
        self.known_tables.adopt(app)
        self._due.reschedule()
        self._wake.set()

    def request(self, table: str, *, execute: bool | None, trigger: Trigger) -> str:
        """Ask for a run of a known table before the tenant's others; its id. Refused while the table is worked on, or
        when too many runs of its tenant wait."""
        entry = self.known_tables.entries.get(table)
        if entry is None:
            if self.known_tables.may_appear(table):
                raise NotYet(
                    f"{table} may exist, but its dataset has not been listed yet: try again later", RETRY_SECONDS
                )
            raise UnknownTable(f"no table {table} is known")
        if table in self.running or any(waiting.entry.label == table for waiting in self._requests):
            raise Refused(RefusalCode.BUSY, f"{table} is already being worked on")
        tenant = entry.work.ref.tenant
        if sum(waiting.entry.work.ref.tenant == tenant for waiting in self._requests) >= MAX_REQUESTS:
            raise Refused(
                RefusalCode.TOO_MANY_REQUESTS, f"{MAX_REQUESTS} runs of {tenant} are already queued; try again later"
            )
        scheduled = ScheduledRun(
            entry=entry,
            run_id=new_run_id(),
            since=self.app.clock.now(),
            requested=True,
            execute=execute,
            trigger=trigger,
        )
        self._requests.append(scheduled)
        self._wake.set()
        return scheduled.run_id

    def cancel(self, run_id: str) -> bool:
        """End a run of this process. False if it has none of that id."""
        scheduled = self.waiting_or_running(run_id)
        if scheduled is not None:
            scheduled.end(Stopped.CANCELLED)
        return scheduled is not None

    def waiting_or_running(self, run_id: str) -> ScheduledRun | None:
        return next(
            (scheduled for scheduled in (*self.running.values(), *self._requests) if scheduled.run_id == run_id), None
        )

    def due_at(self, table: str) -> datetime | None:
        return self._due.at(table)

    def invalidate(self) -> None:
        """Somebody changed due times or holds: look at once."""
        self._due.invalidate()
        self._wake.set()

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        now = self.app.clock.now()
        self.last_beat = asyncio.get_running_loop().time()
        self.app.metrics.scheduler_step.set(now.timestamp())
        await self._retire()
        for tenant, dataset in self.known_tables.wanted(now):
            tasks.create_task(self._look(self.app, tenant, dataset), name=f"discover {tenant.id}/{dataset.id}")
        if await self._due.refresh(now):
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

    async def _affordable(self, now: datetime) -> list[Due]:
        """Tables whose time has come, without those that are paused or that their tenant's budget puts off."""
        entries, waiting = self.known_tables.entries, self._due.waiting(self.running, now)
        due = [one for one in waiting if not self._skips_paused(entries[one.table])]
        if all(tenant.requests_per_day is None for tenant in self.app.settings.tenants):
            return due
        try:
            late = await request_budget.postponed(self.app, due, self.running, now)
        except StateError as exc:
            log.warning("state_store_away", reason=str(exc))
            return []
        for table in late:
            self._due.look_again(table, now + request_budget.LOOK_AGAIN)
            self.app.metrics.count_skip(entries[table].work.ref, request_budget.REASON)
        return [one for one in due if one.table not in late]

    def _start(self, tasks: asyncio.TaskGroup, waiting_now: list[Due]) -> None:
        places = self.app.settings.daemon.max_tables
        requested = {scheduled.entry.label: scheduled for scheduled in self._requests if self._is_current(scheduled)}
        due = self._due.one_suspect([one for one in waiting_now if one.table not in requested], self.running)
        waiting = Counter(one.tenant for one in due)
        for tenant in self.app.settings.tenants:
            self.app.metrics.tables_due.labels(tenant.id).set(waiting[tenant.id])
        due += [
            Due(tenant=str(scheduled.entry.work.ref.tenant), table=label, since=scheduled.since, requested=True)
            for label, scheduled in requested.items()
        ]
        most = share(places) if len(self.app.settings.tenants) > 1 else places
        for one in self._turns.choose(due, self._running_by_tenant(), places - len(self.running), most):
            if one.requested:
                self._requests.remove(requested[one.table])
                self._begin(tasks, requested[one.table])
            else:
                entry, now = self.known_tables.entries[one.table], self.app.clock.now()
                self._begin(tasks, ScheduledRun(entry=entry, run_id=new_run_id(), since=now))

    def _is_current(self, scheduled: ScheduledRun) -> bool:
        """Can it begin under the newest settings? They may have changed while it waited."""
        entry = self.known_tables.entries.get(scheduled.entry.label)
        if scheduled.entry.app is self.app or entry is not None:
            scheduled.entry = entry or scheduled.entry
            return True
        ref = scheduled.entry.work.ref
        if self.known_tables.not_looked_yet(ref.tenant, ref.dataset):
            return False
        gone = UnknownTable(
            f"{scheduled.entry.label} is no longer configured: the settings changed after the run was requested"
        )
        scheduled.entry = replace(
            scheduled.entry, app=self.app, work=replace(scheduled.entry.work, table=None, problem=gone)
        )
        return True

    def _skips_paused(self, entry: Entry) -> bool:
        if not self._due.holds or self._due.holds.covering(entry.label) is None:
            self._reported_paused.discard(entry.label)
            return False
        if entry.label not in self._reported_paused:
            self._reported_paused.add(entry.label)
            self.app.metrics.count_skip(entry.work.ref, "paused")
        return True

    def _begin(self, tasks: asyncio.TaskGroup, scheduled: ScheduledRun) -> None:
        self.running[scheduled.entry.label] = scheduled
        self._users[scheduled.entry.app] += 1
        self._count_running(scheduled)
        tasks.create_task(self._run_scheduled(scheduled), name=f"table {scheduled.entry.label}")

    async def _run_scheduled(self, scheduled: ScheduledRun) -> None:
        label = scheduled.entry.label
        try:
            ended = await run_scheduled(scheduled, self._jitter)
            if ended.due is not None:
                self._due.learn(ended.due)
            self._due.look_again(label, ended.look_again_at)
            if ended.ran:
                self.last_finished = scheduled.entry.app.clock.now()
        finally:
            del self.running[label]
            self._users[scheduled.entry.app] -= 1
            self._count_running(scheduled)
            self._wake.set()

    def _running_by_tenant(self) -> Counter[str]:
        return Counter(str(scheduled.entry.work.ref.tenant) for scheduled in self.running.values())

    def _count_running(self, scheduled: ScheduledRun) -> None:
        tenant = str(scheduled.entry.work.ref.tenant)
        self.app.metrics.tables_running.labels(tenant).set(self._running_by_tenant()[tenant])

    async def _retire(self) -> None:
        for old in [app for app in self._retiring if not self._users[app]]:
            self._retiring.remove(old)
            del self._users[old]
            await old.adapters.aclose()

    async def _rest(self) -> None:
        """Until something happens, the next table is due, or it is time for the next step."""
        now = self.app.clock.now()
        next_due = self._due.next_after(now)
        seconds = STEP_SECONDS if next_due is None else min(STEP_SECONDS, (next_due - now).total_seconds())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()
