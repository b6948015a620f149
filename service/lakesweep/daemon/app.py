"""The composition root: work in, CleanupRuns out. `adapters.py` beside it turns settings into objects.

Commands and the daemon ask it for work and get CleanupRuns back; a table's own trouble never raises here.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from lakesweep.cleanup import planfile
from lakesweep.cleanup.cycle import Cycle
from lakesweep.cleanup.explain import Explainer, Explanation
from lakesweep.cleanup.ports import Clock, ReportProgress, StateStore
from lakesweep.daemon import targets
from lakesweep.daemon.adapters import Adapters
from lakesweep.daemon.clock import SystemClock
from lakesweep.daemon.targets import Work
from lakesweep.daemon.worker import lease
from lakesweep.model.errors import LakesweepError, Refused, SettingsError, UnknownTable
from lakesweep.model.files import Candidate
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.settings.cascade import policy_for
from lakesweep.settings.schema import Settings
from lakesweep.settings.tenants import DatasetSettings, TenantSettings
from lakesweep.state.registry import open_state
from lakesweep.telemetry import logs
from lakesweep.telemetry.metrics import Metrics

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One line of `lakesweep tables`."""

    ref: TableRef
    location: str | None
    problem: str | None
    last_run: dict[str, Any] | None


class App:
    """Everything put together for one set of settings. An async context manager."""

    state: StateStore

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.metrics = Metrics(table_labels=settings.metrics.table_labels)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._adapters = Adapters(settings, clock)
        self._closing = AsyncExitStack()
        self._neighbours: dict[str, dict[TableRef, tuple[Location, ...]]] = {}

    @classmethod
    def open(cls, settings: Settings, *, clock: Clock | None = None) -> App:
        """Use as `async with App.open(settings) as app`."""
        return cls(settings, clock or SystemClock())

    async def __aenter__(self) -> Self:
        self._make_directories()
        self.state = await open_state(self.settings.state_url, self.clock)
        self._closing.push_async_callback(self.state.aclose)
        self._closing.push_async_callback(self._adapters.aclose)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.aclose()

    async def resolve(
        self, target: str | None, *, format: FormatName | None = None, root: str | None = None
    ) -> list[Work]:
        """The tables a target names. A dataset that cannot be read becomes a Work with its problem."""
        location = targets.as_location(target) if target else None
        if location:
            return [await self._bare(location, format, targets.root_location(root) if root else None)]
        pattern = target or "*"
        works: list[Work] = []
        for tenant, dataset in self._datasets():
            if targets.may_match(pattern, tenant.id, dataset.id):
                works += await self._discover(tenant, dataset, pattern)
        if not works:
            known = ", ".join(sorted(f"{tenant.id}/{dataset.id}" for tenant, dataset in self._datasets()))
            raise UnknownTable(
                f"no configured table matches {pattern!r}; "
                + (
                    f"configured datasets: {known}"
                    if known
                    else "no dataset is configured: give --config FILE or a location"
                )
            )
        return works

    async def tables(self) -> list[TableStatus]:
        """Every configured table with its place and its last run."""
        found: list[TableStatus] = []
        for work in await self.resolve(None):
            runs = await self.state.list_runs(table=work.ref.label, limit=1)
            location, problem = await self._place(work)
            found.append(
                TableStatus(ref=work.ref, location=location, problem=problem, last_run=runs[0] if runs else None)
            )
        return found

    async def plan(self, work: Work, *, progress: ReportProgress | None = None) -> CleanupRun:
        """What a run would do; changes nothing."""
        return await self.run(work, execute=False, progress=progress)

    async def run(
        self,
        work: Work,
        *,
        execute: bool | None,
        progress: ReportProgress | None = None,
        stop: asyncio.Event | None = None,
    ) -> CleanupRun:
        """One cycle. `execute` is the operator's word; None leaves it to the settings."""
        run_id = uuid.uuid4().hex
        with logs.about(work.ref, run_id):
            run = await self._run(run_id, work, execute, progress, stop or asyncio.Event())
            self.metrics.count_run(run)
            self._log(run)
            return run

    async def candidates(self, run: CleanupRun) -> AsyncIterator[list[Candidate]]:
        """The rows of a run's plan, in bounded lists."""
        if run.plan is None:
            return
        rows = planfile.read_batches(run.plan.rows_path)
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
            storage=self._adapters.storage(work.tenant),
            engine=self._adapters.inprocess(work.tenant),
            policy=self._policy(work, execute=False),
            clock=self.clock,
        )
        return await explainer.explain(location)

    async def _run(
        self, run_id: str, work: Work, execute: bool | None, progress: ReportProgress | None, stop: asyncio.Event
    ) -> CleanupRun:
        try:
            if work.table is None:
                raise work.problem or UnknownTable(f"{work.ref} cannot be opened")
            policy = self._policy(work, execute=execute)
            ttl = timedelta(seconds=self.settings.daemon.lease_seconds)
            neighbours = await self._neighbours_of(work)
            async with lease(self.state, work.ref.label, self._owner, ttl) as held:
                cycle = Cycle(
                    run_id=run_id,
                    table=work.table,
                    tenant_root=work.tenant_root,
                    policy=policy,
                    execute=not policy.dry_run,
                    storage=self._adapters.storage(work.tenant),
                    choose_engine=lambda state: self._adapters.choose_engine(work.tenant, state),
                    open_deleter=lambda state: self._adapters.deleter(work.tenant, work.tenant_root, state),
                    state=self.state,
                    clock=self.clock,
                    fence=held,
                    fencing_token=held.token,
                    rows_path=str(self._plans / f"{run_id}.parquet"),
                    neighbours=neighbours,
                    stop=stop,
                )
                if progress:
                    cycle.progress = progress
                return await cycle.run()
        except SettingsError:
            raise
        except LakesweepError as exc:
            return self._failed(run_id, work, exc)

    def _failed(self, run_id: str, work: Work, exc: LakesweepError) -> CleanupRun:
        """A run that could not even start."""
        now = self.clock.now()
        run = CleanupRun(
            id=run_id,
            table=work.ref,
            location=None,
            started_at=now,
            finished_at=now,
            phase=Phase.FINISHED,
            outcome=Outcome.FAILED,
            reason=str(exc),
        )
        if isinstance(exc, Refused):
            refusal = Refusal(code=exc.code, reason=exc.reason)
            return replace(run, outcome=Outcome.REFUSED, refusal=refusal, reason=exc.reason)
        return run

    async def _discover(self, tenant: TenantSettings, dataset: DatasetSettings, pattern: str) -> list[Work]:
        root = Location.parse(tenant.root)
        whole = TableRef(tenant=TenantId(tenant.id), dataset=dataset.id, name="*", format=dataset.format)
        try:
            source = self._adapters.format(tenant, dataset)
            refs = targets.matching(pattern, await source.tables())
            return [Work(ref=ref, tenant_root=root, table=await source.open(ref)) for ref in sorted(refs)]
        except LakesweepError as exc:
            return [Work(ref=whole, tenant_root=root, problem=exc)]

    async def _bare(self, location: Location, format: FormatName | None, root: Location | None) -> Work:
        """A location inside a configured tenant's root is that tenant's: its S3, its root and its dry_run hold."""
        owner = next((t for t in self.settings.tenants if Location.parse(t.root).overlaps(location)), None)
        if root is None:
            root = Location.parse(owner.root) if owner else location
        table = await self._adapters.bare_table(location, format, root, owner.id if owner else "")
        return Work(ref=table.ref, tenant_root=root, table=table, bare=True, bare_tenant=owner.id if owner else "")

    async def _place(self, work: Work) -> tuple[str | None, str | None]:
        if work.table is None:
            return None, str(work.problem)
        try:
            return (await work.table.load()).location.raw, None
        except LakesweepError as exc:
            return None, str(exc)

    async def _owner_of(self, location: Location, target: str | None) -> Work:
        """The table whose roots contain a path."""
        works = await self.resolve(target)
        for work in works:
            places = (await self._neighbours_of(work)).get(work.ref, ())
            if any(place.contains(location) for place in places) or (target and len(works) == 1):
                return work
        raise UnknownTable(
            f"no {'matching' if target else 'configured'} table keeps files at {location}: give --target"
        )

    async def _neighbours_of(self, work: Work) -> Mapping[TableRef, tuple[Location, ...]]:
        """Where the tenant's tables are. Tenant roots never overlap, so other tenants need not be asked."""
        tenant = self.settings.tenant(work.ref.tenant)
        if work.bare or tenant is None:
            return {}
        if tenant.id not in self._neighbours:
            places: dict[TableRef, tuple[Location, ...]] = {}
            for dataset in tenant.datasets:
                try:
                    places |= await self._adapters.format(tenant, dataset).locations()
                except LakesweepError as exc:
                    log.warning("neighbours_unknown", dataset=dataset.id, reason=str(exc))
            self._neighbours[tenant.id] = places
        return self._neighbours[tenant.id]

    def _datasets(self) -> list[tuple[TenantSettings, DatasetSettings]]:
        return [(tenant, dataset) for tenant in self.settings.tenants for dataset in tenant.datasets]

    def _policy(self, work: Work, *, execute: bool | None) -> CleanupPolicy:
        ref = work.ref
        return policy_for(self.settings, work.tenant, ref.dataset, ref.name, execute=execute)

    @property
    def _plans(self) -> Path:
        artifacts = self.settings.artifacts
        base = Path(artifacts.path) if artifacts.scheme == "file" else self.settings.service.data_dir / "artifacts"
        return base / "plans"

    def _make_directories(self) -> None:
        for directory in (self.settings.service.data_dir, self._plans):
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise SettingsError(f"service.data_dir: cannot create {directory}: {exc.strerror}") from exc

    def _log(self, run: CleanupRun) -> None:
        """The one line a run leaves behind."""
        fields = {
            "outcome": run.outcome,
            "reason": run.reason,
            "expired_snapshots": len(run.expired_snapshots),
            "candidates": run.plan.candidates.files if run.plan else 0,
            "deleted": run.deletion.deleted.files,
            "bytes": run.deletion.deleted.bytes,
            "failed": len(run.deletion.failed),
            "spared": run.spared,
            "missing": run.plan.missing_count if run.plan else 0,
        }
        level = log.info if run.outcome in (Outcome.DONE, Outcome.DRY_RUN) else log.warning
        level("run_finished", **fields)
