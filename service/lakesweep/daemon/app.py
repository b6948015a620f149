"""The composition root: work in, CleanupRuns out. `adapters.py` beside it turns settings into objects.

Commands and the daemon ask it for work and get CleanupRuns back; a table's own trouble never raises here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Self

import pyarrow as pa

from lakesweep.aio import working_for
from lakesweep.cleanup import plan_file, private_files
from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.cycle import Cycle
from lakesweep.cleanup.explain import ConfirmationWait, Explainer, Explanation
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.daemon import holds, run_results, table_status, targets
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.audit_factory import AuditFactory
from lakesweep.daemon.clock import SystemClock
from lakesweep.daemon.discovery import Discovery
from lakesweep.daemon.events import ServiceEvents
from lakesweep.daemon.lease import HeldLease, lease
from lakesweep.daemon.limits import Limits
from lakesweep.daemon.memory import MemoryWatch
from lakesweep.daemon.run_ports import TableDeleters, TableEngines, TableSurroundings
from lakesweep.daemon.table_locations import TableLocations
from lakesweep.daemon.table_status import TableStatus
from lakesweep.daemon.targets import Work
from lakesweep.engines.table_size import RUNS_LOOKED_AT
from lakesweep.model.access import Trigger
from lakesweep.model.errors import Interrupted, LakesweepError, LeaseLost, Refused, SettingsError, UnknownTable
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.run import ReportProgress
from lakesweep.ports.state import Approval, DueTime, StateStore
from lakesweep.ports.table import MergesManifests
from lakesweep.settings.cascade import cleanup_for, policy_for
from lakesweep.settings.schema import Settings
from lakesweep.state.installation_key import derived, installation_key
from lakesweep.state.registry import open_state
from lakesweep.telemetry import logs
from lakesweep.telemetry.metrics import Metrics


def new_run_id() -> str:
    """Unique for ever."""
    return uuid.uuid4().hex


class App:
    """Everything put together for one set of settings. An async context manager."""

    state: StateStore
    key: bytes
    """The installation's key; see `state.installation_key`."""
    trails: AuditFactory
    events: ServiceEvents

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.clock = clock
        self.metrics = metrics or Metrics(table_labels=settings.metrics.table_labels)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._limits = Limits.of(settings.daemon)
        self.memory = MemoryWatch(settings)
        self._adapters = Adapters(settings, clock)
        self.artifacts = self._adapters.artifacts()
        self.neighbours = TableLocations(self._adapters, clock)
        self.discovery = Discovery(settings, self._adapters, self.neighbours)
        self._closing = AsyncExitStack()

    @classmethod
    def open(cls, settings: Settings, *, clock: Clock | None = None) -> App:
        """Use as `async with App.open(settings) as app`."""
        return cls(settings, clock or SystemClock())

    async def __aenter__(self) -> Self:
        self._make_directories()
        self.state = await open_state(self.settings.state_url, self.clock)
        self._closing.push_async_callback(self.state.aclose)
        self._closing.push_async_callback(self._adapters.aclose)
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

    async def retire(self) -> None:
        """Close the adapters. The state store stays open for whoever shares it."""
        await self._adapters.aclose()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.aclose()

    async def resolve(
        self, target: str | None, *, format: FormatName | None = None, root: str | None = None
    ) -> list[Work]:
        """The tables a target names. A dataset that cannot be read becomes a Work with its problem."""
        return await self.discovery.resolve(target, format=format, root=root)

    async def tables(self) -> list[TableStatus]:
        """Every configured table with its place and its last run."""
        held = await self.state.holds()
        return [await table_status.of(work, self.state, held) for work in await self.resolve(None)]

    async def plan(self, work: Work) -> CleanupRun:
        """What a run would do; changes nothing."""
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
    ) -> CleanupRun:
        """One cycle, under the lease that is held or a new one. `execute` is the operator's word; None leaves it to
        the settings."""
        run_id = run_id or new_run_id()
        with logs.about(work.ref, run_id), working_for(work.tenant):
            try:
                async with self.claimed(work.ref, run_id, held) as claimed:
                    ports, context = await self._prepare(run_id, work, claimed, trigger, execute=execute)
                    context = replace(context, stop=stop or context.stop, progress=progress or context.progress)
                    cycle = Cycle(ports, context)
                    async with self.memory.watching(work.ref.label, run_id, context.stop):
                        run = await _guarded(cycle, claimed, self.settings.daemon.max_cycle_hours)
                    await holds.hold_if_lasting(self.state, run, self.clock.now())
            except SettingsError:
                raise
            except LakesweepError as exc:
                run = run_results.not_started(run_id, work.ref, exc, self.clock.now())
            self.metrics.count_run(run)
            run_results.tell(run)
            return run

    def broken(self, work: Work, exc: Exception) -> CleanupRun:
        """A run that met a bug of ours: failed like any other, so that the tables after it have their turn."""
        self.metrics.count_panic(work.ref)
        run = run_results.not_started(new_run_id(), work.ref, run_results.unexpected(exc), self.clock.now())
        run_results.tell(run)
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
        """Let the plan of a run that a ceiling stopped go, in the next cycle of its table, which comes at once."""
        now = self.clock.now()
        run = await self.state.get_run(run_id)
        table = run["table"] if run else ""
        hours = cleanup_for(self.settings, *table.split("/", 2)).approval_hours
        approvals = Approvals(state=self.state, artifacts=self.artifacts, record=self.events.approved)
        approval = await approvals.give(run_id, by=by, now=now, valid_for=timedelta(hours=hours), digest=digest)
        due = await self.state.get_due(approval.table) or DueTime(table=approval.table, next_due=now)
        await self.state.set_due(replace(due, next_due=now))
        return approval

    async def compact_manifests(self, work: Work) -> bool:
        """Merge a table's manifests under its lease. False when there is nothing to merge."""
        if work.table is None:
            raise work.problem or UnknownTable(f"{work.ref} cannot be opened")
        if not isinstance(work.table, MergesManifests):
            raise Refused("unsupported", f"only Paimon's manifests are merged, not those of {work.ref.format}")
        await holds.refuse_held(self.state, *work.names)
        async with self.claimed(work.ref, new_run_id()) as held:
            return await work.table.compact_manifests(self.clock.now(), held) is not None

    async def candidates(self, run: CleanupRun) -> AsyncIterator[list[Candidate]]:
        """The rows of a run's plan, in bounded lists."""
        if run.plan is None:
            return
        rows = plan_file.read_batches(run.plan.rows_path)
        while batch := await asyncio.to_thread(next, rows, None):
            yield batch

    async def plan_rows(self, run: CleanupRun) -> AsyncIterator[pa.RecordBatch]:
        """The same as columns."""
        if run.plan is None:
            return
        rows = plan_file.read_rows(run.plan.rows_path)
        while batch := await asyncio.to_thread(next, rows, None):
            yield batch

    async def explain(self, path: str, *, target: str | None = None) -> Explanation:
        """Why one file stays or goes."""
        location = targets.as_location(path)
        if location is None:
            raise SettingsError(f"{path!r} is not the full address of a file (expected s3://…, file://… or /path)")
        work = await self._owner_of(location, target)
        if work.table is None:
            raise work.problem or UnknownTable(f"{work.ref} cannot be opened")
        explainer = Explainer(
            table=work.table,
            storage=self._adapters.storage(work.tenant, work.read_root),
            engine=self._adapters.inprocess(work.tenant, work.read_root),
            policy=self._policy(work, execute=False),
            clock=self.clock,
        )
        wait = ConfirmationWait(policy=explainer.policy, state=self.state, artifacts=self.artifacts)
        return await wait.add(await explainer.explain(location), self.clock.now())

    async def _prepare(
        self, run_id: str, work: Work, held: HeldLease, trigger: Trigger | None, *, execute: bool | None
    ) -> tuple[Ports, RunContext]:
        if work.table is None:
            raise work.problem or UnknownTable(f"{work.ref} cannot be opened")
        policy = self._policy(work, execute=execute)
        if not policy.dry_run:
            await holds.refuse_held(self.state, *work.names)
        ports = Ports(
            table=work.table,
            storage=self._adapters.storage(work.tenant, work.read_root),
            engines=TableEngines(
                adapters=self._adapters,
                work=work,
                runs=await self.state.list_runs(table=work.ref.label, limit=RUNS_LOOKED_AT),
            ),
            deleters=TableDeleters(adapters=self._adapters, work=work, policy=policy, metrics=self.metrics),
            state=self.state,
            audit=self.trails.open(run_id, work.ref, held.token, trigger),
            clock=self.clock,
            artifacts=self.artifacts,
            surroundings=self._surroundings(work),
        )
        context = RunContext(
            run_id=run_id,
            tenant_root=work.tenant_root,
            policy=policy,
            execute=not policy.dry_run,
            fence=held,
            fencing_token=held.token,
            rows_path=str(self.artifacts.file("plans", f"{run_id}.parquet")),
            inventory=self._inventory_of(work),
            listing_slots=self._limits.listings.of(work.tenant),
            deletion_slots=self._limits.deletions.of(work.tenant),
        )
        return ports, context

    def _surroundings(self, work: Work) -> TableSurroundings:
        return TableSurroundings(
            settings=self.settings, locations=self.neighbours, state=self.state, clock=self.clock, work=work
        )

    async def _owner_of(self, location: Location, target: str | None) -> Work:
        """The table whose roots contain a path."""
        if target is None and not self.discovery.datasets():
            raise UnknownTable("no dataset is configured: give the table as --target, or a file with --config")
        works = await self.resolve(target)
        for work in works:
            places = (await self._surroundings(work).neighbours()).places.get(work.ref, ())
            if any(place.contains(location) for place in places) or (target and len(works) == 1):
                return work
        raise UnknownTable(
            f"no {'matching' if target else 'configured'} table keeps files at {location}: give --target"
        )

    def _inventory_of(self, work: Work) -> Location | None:
        """The ready file list of a configured table's dataset, if it has one."""
        tenant = None if work.bare else self.settings.tenant(work.tenant)
        dataset = tenant.dataset(work.ref.dataset) if tenant else None
        return Location.parse(dataset.inventory) if dataset and dataset.inventory else None

    def _policy(self, work: Work, *, execute: bool | None) -> CleanupPolicy:
        ref = work.ref
        return policy_for(self.settings, work.tenant, ref.dataset, ref.name, execute=execute)

    def _use_key(self, key: bytes) -> None:
        self.key = key
        self._adapters.cache_key = derived(key, "cache")

    def _open_trails(self) -> None:
        self.trails = AuditFactory(
            settings=self.settings,
            adapters=self._adapters,
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
