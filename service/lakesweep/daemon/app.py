"""The composition root. `adapters.py` beside it turns settings into objects.

Commands and the daemon give it work and get CleanupRuns back; the failure of a single table never raises here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Self, TypeVar

import pyarrow as pa

from lakesweep.aio import working_for
from lakesweep.cleanup import plan_file, private_files
from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.cycle import Cycle
from lakesweep.cleanup.explain import Explanation
from lakesweep.daemon import cycle_setup, holds, lake_report, run_results, table_status, targets
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.audit_factory import AuditFactory
from lakesweep.daemon.clock import SystemClock
from lakesweep.daemon.discovery import Discovery
from lakesweep.daemon.events import ServiceEvents
from lakesweep.daemon.file_users import OtherTenants
from lakesweep.daemon.ghosts import GhostSearch
from lakesweep.daemon.lease import HeldLease, lease
from lakesweep.daemon.limits import Slots
from lakesweep.daemon.memory import MemoryWatch
from lakesweep.daemon.notifier import Notifier
from lakesweep.daemon.restoring import Restoring
from lakesweep.daemon.table_status import TableStatus
from lakesweep.daemon.table_uses import TableUses
from lakesweep.daemon.targets import Work
from lakesweep.model.access import Trigger
from lakesweep.model.errors import Interrupted, LakesweepError, LeaseLost, Refused, SettingsError
from lakesweep.model.files import Candidate, Tally
from lakesweep.model.ghost import Ghost
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import CleanupRun, ListingMode
from lakesweep.model.table import BARE_TENANT, FormatName, TableRef, is_ghost
from lakesweep.ports.clock import Clock
from lakesweep.ports.run import ReportProgress
from lakesweep.ports.state import Approval, DueTime, StateStore
from lakesweep.ports.table import MergesManifests
from lakesweep.settings.cascade import cleanup_for, policy_for
from lakesweep.settings.cleanup import CleanupOverride
from lakesweep.settings.schema import Settings
from lakesweep.state.installation_key import derived, installation_key
from lakesweep.state.registry import open_state
from lakesweep.telemetry import compiled, logs
from lakesweep.telemetry.metrics import Metrics
from lakesweep.telemetry.tracing import tracing_by

T = TypeVar("T")


def new_run_id() -> str:
    return uuid.uuid4().hex


class App:
    """Everything put together for one set of settings. An async context manager."""

    state: StateStore
    key: bytes
    """The installation's key; see `state.installation_key`."""
    trails: AuditFactory
    events: ServiceEvents

    def __init__(
        self, settings: Settings, clock: Clock, metrics: Metrics | None = None, override: CleanupOverride | None = None
    ) -> None:
        """`override` are rules for this one call, over all that is configured."""
        self.settings = settings
        self.override = override or CleanupOverride()
        self.clock = clock
        self.metrics = metrics or Metrics(table_labels=settings.metrics.table_labels)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.listings = Slots(settings.daemon.max_listings)
        self.deletions = Slots(settings.daemon.max_deletions)
        """Over all tables; planning takes the former, deletion batches the latter. Reading for a sweep never waits."""
        self.memory = MemoryWatch(settings)
        self.adapters = Adapters(settings, clock)
        self.artifacts = self.adapters.artifacts()
        self.neighbours = TableUses(self.adapters, clock)
        self.other_tenants = OtherTenants(self)
        self.discovery = Discovery(settings, self.adapters, self.neighbours)
        self._closing = AsyncExitStack()
        self.tracing = tracing_by(settings.tracing)

    @classmethod
    def open(cls, settings: Settings, *, clock: Clock | None = None, override: CleanupOverride | None = None) -> App:
        """Use as `async with App.open(settings) as app`."""
        return cls(settings, clock or SystemClock(), override=override)

    async def __aenter__(self) -> Self:
        self._make_directories()
        compiled.warn_if_missing()
        self.state = await open_state(self.settings.state_url, self.clock)
        self._closing.push_async_callback(self.state.aclose)
        self._closing.push_async_callback(self.adapters.aclose)
        self._closing.push_async_callback(self.tracing.flush)
        self._use_key(await installation_key(self.settings.service.installation_key, self.state))
        self._open_trails()
        return self

    def successor(self, settings: Settings) -> App:
        """The same service under new settings: with this one's state store, clock and metrics, and its own adapters."""
        after = App(settings, self.clock, self.metrics)
        after.state = self.state
        after.memory = self.memory
        after.memory.adopt(settings)
        after._use_key(self.key)
        after._open_trails()
        return after

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def resolve(
        self, target: str | None, *, format: FormatName | None = None, root: str | None = None
    ) -> list[Work]:
        """The tables a target names. A dataset that cannot be read becomes a Work with its problem."""
        return await self.discovery.resolve(target, format=format, root=root)

    async def works(self, names: Sequence[str]) -> list[Work]:
        """What several targets name, or everything configured if there is no target."""
        wanted: Sequence[str | None] = names or [None]
        return [work for name in wanted for work in await self.resolve(name)]

    async def tables(self, target: str | None = None) -> list[TableStatus]:
        held = await self.state.holds()
        return [await table_status.of(work, self.state, held) for work in await self.resolve(target)]

    async def ghosts(self, tenant: str) -> list[Ghost]:
        """Directories below a tenant's root that nobody claims. What was found is remembered for the reports."""
        with working_for(tenant):
            found = await self.ghost_search(tenant).find()
        await lake_report.remember_ghosts(self.state, tenant, found, self.clock.now())
        self.metrics.count_ghosts(tenant, Tally(files=len(found), bytes=sum(one.bytes for one in found)))
        return found

    def ghost_search(self, tenant: str) -> GhostSearch:
        return GhostSearch(app=self, tenant=targets.tenant(self.settings, tenant))

    async def plan(self, work: Work) -> CleanupRun:
        return await self.run(work, execute=False)

    async def run(
        self,
        work: Work,
        *,
        execute: bool | None,
        progress: ReportProgress | None = None,
        stop: asyncio.Event | None = None,
        trigger: Trigger | None = None,
        run_id: str | None = None,
        held: HeldLease | None = None,
        listing: ListingMode = ListingMode.ALWAYS,
        regular_wait: timedelta = timedelta(0),
    ) -> CleanupRun:
        """One cycle, under the lease that is held or a new one. `execute` None leaves the choice to the settings."""
        run_id = run_id or new_run_id()
        with logs.about(work.ref, run_id), working_for(work.tenant), self.tracing.cycle(work.ref, run_id) as trace:
            try:
                async with self.claimed(work.ref, run_id, held) as claimed:
                    ports, context = await cycle_setup.prepare(self, run_id, work, claimed, trigger, execute=execute)
                    context = replace(
                        context,
                        listing=listing,
                        regular_wait=regular_wait,
                        stop=stop or context.stop,
                        progress=trace.watching(progress or context.progress),
                    )
                    cycle = Cycle(ports, context)
                    async with self.memory.watching(work.ref.label, run_id, context.stop):
                        run = await _guarded(cycle, claimed, self.settings.daemon.max_cycle_hours)
                    await holds.hold_if_lasting(self.state, run, self.clock.now())
            except SettingsError:
                raise
            except LakesweepError as exc:
                run = run_results.not_started(run_id, work.ref, exc, self.clock.now())
            trace.ended(run)
            self.metrics.count_run(run)
            run_results.log_result(run)
            await self.notifier.note(run)
            return run

    def broken(self, work: Work, exc: Exception) -> CleanupRun:
        """A run that met a bug of ours: failed like any other, so that the tables after it have their turn."""
        self.metrics.count_panic(work.ref)
        run = run_results.not_started(new_run_id(), work.ref, run_results.unexpected(exc), self.clock.now())
        run_results.log_result(run)
        return run

    @asynccontextmanager
    async def claimed(self, ref: TableRef, run_id: str, held: HeldLease | None = None) -> AsyncIterator[HeldLease]:
        """The table's lease for one run: the one that is held already, or a new one. Raises Refused when busy."""
        if held is not None:
            yield held
            return
        # Each run is an owner of its own, so that not even two runs of one process work on a table at once.
        ttl = timedelta(seconds=self.settings.daemon.lease_seconds)
        async with lease(self.state, ref.label, f"{self.owner}:{run_id}", ttl) as claimed:
            yield claimed

    async def approve(self, run_id: str, *, by: str, digest: str | None = None) -> Approval:
        """Approve the plan of a run that a ceiling stopped, for the next cycle of its table, which comes at once."""
        now = self.clock.now()
        run = await self.state.get_run(run_id)
        table = run["table"] if run else ""
        hours = cleanup_for(self.settings, *table.split("/", 2)).approval_hours
        approvals = Approvals(state=self.state, artifacts=self.artifacts, record=self.events.approved)
        approval = await approvals.give(run_id, by=by, now=now, valid_for=timedelta(hours=hours), digest=digest)
        if not is_ghost(approval.table):  # the service itself never works on ghosts
            due = await self.state.get_due(approval.table) or DueTime(table=approval.table, next_due=now)
            await self.state.set_due(replace(due, next_due=now))
        return approval

    def approval_remark(self, table: str) -> str | None:
        names = table.split("/", 2)
        if is_ghost(table):
            return "the service deletes no ghosts: `lakesweep run --ghosts --execute` does"
        if policy_for(self.settings, *names, execute=True).dry_run:
            return "nothing will be deleted: the tenant's, dataset's or table's own dry_run = true overrides every run"
        effective = cleanup_for(self.settings, *names)
        if names[0] == BARE_TENANT:
            return "the service does not clean bare locations: `lakesweep run --execute` does"
        if effective.dry_run or not effective.enabled:
            key = "dry_run = true" if effective.dry_run else "enabled = false"
            return f"the service deletes nothing by itself ({key}): `lakesweep run --execute` does"
        return None

    async def compact_manifests(self, work: Work) -> bool:
        """Merge a table's manifests under its lease. False when there is nothing to merge."""
        table = work.opened()
        if not isinstance(table, MergesManifests):
            raise Refused(RefusalCode.UNSUPPORTED, f"only manifests of Paimon can be merged, not of {work.ref.format}")
        await holds.refuse_held(self.state, *work.names)
        async with self.claimed(work.ref, new_run_id()) as held:
            return await table.compact_manifests(self.clock.now(), held) is not None

    def candidates(self, run: CleanupRun) -> AsyncIterator[list[Candidate]]:
        return _read_in_threads(plan_file.read_batches(run.plan.rows_path) if run.plan else iter(()))

    def plan_rows(self, run: CleanupRun) -> AsyncIterator[pa.RecordBatch]:
        return _read_in_threads(plan_file.read_rows(run.plan.rows_path) if run.plan else iter(()))

    def restoring(self, run_id: str, patterns: Sequence[str], trigger: Trigger, *, admin: bool = True) -> Restoring:
        return Restoring(app=self, run_id=run_id, patterns=patterns, trigger=trigger, admin=admin)

    async def explain(
        self, path: str, *, target: str | None = None, format: FormatName | None = None, root: str | None = None
    ) -> Explanation:
        return await table_status.explain(self, path, target=target, format=format, root=root)

    def _use_key(self, key: bytes) -> None:
        self.key = key
        self.adapters.cache_key = derived(key, "cache")

    @property
    def notifier(self) -> Notifier:
        return Notifier(self.settings.notify, self.state, self.clock)

    def _open_trails(self) -> None:
        self.trails = AuditFactory(
            settings=self.settings,
            adapters=self.adapters,
            state=self.state,
            clock=self.clock,
            key=derived(self.key, "audit"),
            worker=self.owner,
        )
        self.events = ServiceEvents(trails=self.trails)

    def _make_directories(self) -> None:
        plans = self.artifacts.file("plans", "")
        for directory in (self.settings.service.data_dir, plans.parent, plans):
            try:
                private_files.make_directory(directory)
            except OSError as exc:
                raise SettingsError(f"service.data_dir: cannot create {directory}: {exc.strerror}") from exc


async def _guarded(cycle: Cycle, held: HeldLease, hours: int) -> CleanupRun:
    """Run it while the lease is ours, and no longer than one run may take."""
    deadline = asyncio.timeout(hours * 3600)
    try:
        async with deadline, held.guarding():
            return await cycle.run()
    except LeaseLost as exc:
        return await cycle.abandon(exc)
    except TimeoutError:
        if not deadline.expired():
            raise
        return await cycle.abandon(Interrupted(f"the run took longer than daemon.max_cycle_hours = {hours}"))


async def _read_in_threads(rows: Iterator[T]) -> AsyncIterator[T]:
    while batch := await asyncio.to_thread(next, rows, None):
        yield batch
