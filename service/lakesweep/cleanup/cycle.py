"""START READING HERE: one cycle over one table, straight down.

    load -> list, then mark and judge -> guards -> save the plan -> commit the expiry -> sweep -> finish

Everything is planned and checked before anything changes: the expiry commit comes after the guards, so a
damaged table or a plan above its ceiling also keeps its snapshots. Between plan and sweep the head moves
(our own commit moves it, others may), and each batch is revalidated against the newest head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from lakesweep.cleanup import guards, sweep
from lakesweep.cleanup.deleter import Deleter
from lakesweep.cleanup.ports import (
    Clock,
    Engine,
    Fence,
    Marked,
    OrphanJob,
    PlanHeader,
    Progress,
    ReportProgress,
    StateStore,
    Storage,
    Table,
    TableState,
)
from lakesweep.cleanup.revalidate import Revalidator
from lakesweep.model.errors import Indeterminate, LakesweepError, Refused
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import CleanupRun, EngineChoice, Outcome, Phase, Refusal
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef


def _silent(_: Progress) -> None:
    """Nobody is watching."""


@dataclass(kw_only=True)
class Cycle:
    """The ports and rules one cycle works with. `run` may be called once."""

    run_id: str
    table: Table
    tenant_root: Location
    policy: CleanupPolicy
    execute: bool
    storage: Storage
    choose_engine: Callable[[TableState], tuple[Engine, EngineChoice]]
    open_deleter: Callable[[TableState], Deleter]
    """A gated deleter for this tenant and these table roots."""
    state: StateStore
    clock: Clock
    fence: Fence
    fencing_token: int
    rows_path: str
    neighbours: Mapping[TableRef, tuple[Location, ...]]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    progress: ReportProgress = _silent
    _latest: CleanupRun | None = field(init=False, default=None)
    _planned_by: Engine = field(init=False)
    _marked: Marked = field(init=False)

    async def run(self) -> CleanupRun:
        """One table, whatever happens: trouble becomes the outcome, never an exception of the table's own."""
        run = CleanupRun(id=self.run_id, table=self.table.ref, location=None, started_at=self.clock.now())
        await self.state.start_run(run)
        try:
            run = await self._plan(run)
            run = await self._execute(run)
        except Refused as exc:
            run = self._refuse(self._last(run), Refusal(code=exc.code, reason=exc.reason))
        except Indeterminate as exc:
            refusal = Refusal(code="indeterminate", reason=str(exc))
            run = replace(self._last(run), refusal=refusal, outcome=Outcome.FAILED, reason=str(exc))
        except LakesweepError as exc:
            run = replace(self._last(run), outcome=Outcome.FAILED, reason=str(exc))
        run = replace(run, phase=Phase.FINISHED, finished_at=self.clock.now())
        await self.state.update_run(run)
        return run

    async def _plan(self, run: CleanupRun) -> CleanupRun:
        """Steps that change nothing: load, list, mark, judge, check, save."""
        before_listing = await self.table.load()
        run = self._note(run, location=before_listing.location.raw, head=before_listing.head)
        now, store_now = self.clock.now(), await self.storage.now()
        engine, choice = self.choose_engine(before_listing)
        run = self._note(run, engine=choice, phase=Phase.DETECTING)
        marking = _Marking(cycle=self, now=now)
        plan = await engine.find_orphans(
            OrphanJob(
                ref=self.table.ref,
                roots=before_listing.roots,
                layout=before_listing.layout,
                cutoff=guards.cutoff(self.policy, before_listing.minimum_age, now, store_now),
                mark=marking,
                rows_path=self.rows_path,
            )
        )
        marked, expiry = marking.result()
        run = self._note(run, plan=plan, expiry=expiry, head=marked.state.head, phase=Phase.CHECKING)
        self._planned_by, self._marked = engine, marked
        refusal = (
            guards.check_clock(self.policy, now, store_now)
            or guards.check_tenant_root(marked.state, self.tenant_root)
            or guards.check_overlap(marked.state, self.neighbours)
            or self._check_roots_stayed(before_listing, marked.state)
            or guards.check_plan(plan, marked.state, self.policy, await self._foreign_owner(marked.state, plan))
        )
        await self._save(plan)
        if refusal:
            return self._refuse(run, refusal)
        return run

    async def _execute(self, run: CleanupRun) -> CleanupRun:
        """Steps that change things: commit the expiry, sweep, and tidy up after it."""
        plan, expiry = run.plan, run.expiry
        if run.outcome is not None or plan is None or expiry is None:
            return run
        if not self.execute:
            return replace(run, outcome=Outcome.DRY_RUN, reason="nothing was changed")
        if not self.table.executable:
            raise Refused("plan_only", _PLAN_ONLY)
        run = await self._commit_expiry(self._note(run, phase=Phase.EXPIRING), expiry)
        run = await self._sweep(self._note(run, phase=Phase.SWEEPING), plan)
        if run.outcome is None:
            await self.table.after_sweep(self._marked.state, run.expiry or expiry)
            await self.state.set_pending_expiry(self.table.ref.label, None, self.run_id)
            run = replace(run, outcome=Outcome.DONE)
        return run

    async def _commit_expiry(self, run: CleanupRun, planned: ExpiryPlan) -> CleanupRun:
        if planned.empty:
            return run
        state = self._marked.state
        # A crash between this commit and the sweep must not forget which files the expiry set free.
        if await self.state.pending_expiry(self.table.ref.label) is None:
            await self.state.set_pending_expiry(self.table.ref.label, state.head, self.run_id)
        await self.fence.check()
        _, committed = await self.table.commit_expiry(state, self.policy, self.clock.now(), self.fence)
        return self._note(
            run,
            expiry=committed,
            expired_snapshots=tuple(snapshot.id for snapshot in committed.expire),
            expired_partitions=committed.partitions,
        )

    async def _sweep(self, run: CleanupRun, plan: OrphanPlan) -> CleanupRun:
        deleter = self.open_deleter(self._marked.state)
        try:
            result = await sweep.Sweep(
                run_id=self.run_id,
                plan=plan,
                match_by=self._marked.state.layout.match_by,
                policy=self.policy,
                deleter=deleter,
                journal=self.state,
                fence=self.fence,
                fencing_token=self.fencing_token,
                revalidate=Revalidator(table=self.table, engine=self._planned_by, planned=self._marked),
                stop=self.stop,
                progress=self.progress,
            ).run()
        finally:
            await deleter.aclose()
        run = self._note(run, deletion=result.report, spared=result.spared)
        if result.stopped_by is not None:
            raise result.stopped_by
        if result.interrupted:
            return replace(run, outcome=Outcome.FAILED, reason="stopped from outside; the next cycle goes on")
        if result.report.failed:
            first = result.report.failed[0]
            reason = f"{len(result.report.failed)} objects could not be deleted (first: {first.path}: {first.why})"
            return replace(run, outcome=Outcome.FAILED, reason=reason)
        return run

    async def _foreign_owner(self, state: TableState, plan: OrphanPlan) -> str | None:
        return await self.table.foreign_owner(state, plan.unreferenced_metadata)

    def _check_roots_stayed(self, listed: TableState, marked: TableState) -> Refusal | None:
        if listed.roots == marked.roots and listed.table_uuid == marked.table_uuid:
            return None
        return Refusal(
            code="table_changed",
            reason="the table moved or was replaced while it was being listed: the next cycle sees it whole",
        )

    async def _save(self, plan: OrphanPlan) -> None:
        await self.state.save_plan(
            PlanHeader(
                run_id=self.run_id,
                table=self.table.ref.label,
                head=plan.head,
                digest=plan.digest,
                rows_path=plan.rows_path,
                candidates=plan.candidates.files,
                bytes=plan.candidates.bytes,
                created_at=self.clock.now(),
            )
        )

    def _refuse(self, run: CleanupRun, refusal: Refusal) -> CleanupRun:
        return replace(run, refusal=refusal, outcome=Outcome.REFUSED, reason=refusal.reason)

    def _note(self, run: CleanupRun, **changes: object) -> CleanupRun:
        """Remember how far the run has come, so that an error reports everything known up to it."""
        latest = replace(run, **changes)  # type: ignore[arg-type]  # replace itself checks the field names
        self._latest = latest
        self.progress(Progress(phase=latest.phase))
        return latest

    def _last(self, run: CleanupRun) -> CleanupRun:
        return self._latest or run


@dataclass(kw_only=True)
class _Marking:
    """Reads the table again once the listing is complete: whatever was committed meanwhile counts as live."""

    cycle: Cycle
    now: datetime
    _result: tuple[Marked, ExpiryPlan] | None = None

    async def __call__(self) -> Marked:
        table, store = self.cycle.table, self.cycle.state
        state = await table.load()
        expiry = table.plan_expiry(state, self.cycle.policy, self.now)
        pending = await store.pending_expiry(table.ref.label)
        before = await table.load_at(pending, state) if pending and pending != state.head else None
        marked = Marked(state=state, references=await table.references(state, expiry, before))
        self._result = (marked, expiry)
        return marked

    def result(self) -> tuple[Marked, ExpiryPlan]:
        if self._result is None:
            raise Indeterminate("the engine finished without reading any reference")
        return self._result


_PLAN_ONLY = (
    "a bare Iceberg location has no catalog, so nothing proves which metadata is current: "
    "configure the table's catalog to execute this plan"
)
