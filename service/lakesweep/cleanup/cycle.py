"""START READING HERE: one cycle over one table, straight down.

    load -> list, then mark and judge -> guards -> save the plan -> commit the expiry -> sweep -> finish

Everything is planned and checked before anything changes: the expiry commit comes after the guards, so a
damaged table or a plan above its ceiling also keeps its snapshots. Between plan and sweep the head moves
(our own commit moves it, others may), and each batch is revalidated against the newest head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from lakesweep.aio import StopRequest, cancel_on, interruption
from lakesweep.cleanup import (
    explain_missing,
    foreign_metadata,
    grace,
    guards,
    interrupted_deletes,
    interrupted_runs,
    sweep,
)
from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.delete_conditions import nobody_objects
from lakesweep.cleanup.known_roots import KnownRoots, holds_only_its_own
from lakesweep.cleanup.ledger import Ledger
from lakesweep.cleanup.mark import Lent, Marking, nothing_lent
from lakesweep.cleanup.revalidate import Revalidator
from lakesweep.cleanup.run_recorder import RunRecorder
from lakesweep.cleanup.verify_unchanged import VerifyUnchanged
from lakesweep.model.errors import Indeterminate, LakesweepError, Refused, Unreadable
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.refusal import consequences
from lakesweep.model.run import CleanupRun, EngineChoice, Outcome, Phase, Refusal
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.audit import Audit
from lakesweep.ports.clock import Clock
from lakesweep.ports.deleter import Deleter
from lakesweep.ports.engine import Engine, Inventory, Marked, OrphanJob
from lakesweep.ports.run import Fence, Progress, ReportProgress, Slots
from lakesweep.ports.state import PlanHeader, StateStore
from lakesweep.ports.storage import Storage
from lakesweep.ports.table import ClosesFirst, Table, TableState


def _silent(_: Progress) -> None:
    """Nobody is watching."""


async def _clock_is_right(_: timedelta) -> None:
    """Nobody doubts it."""


async def _nothing_new(_: TableState) -> None:
    """Nobody objects."""


async def _no_standings(_: Iterable[Location]) -> guards.Standings:
    """Nobody looks at the disk."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """What the changing half of a cycle takes over from the planning half."""

    engine: Engine
    marked: Marked
    expiry: ExpiryPlan
    at: datetime


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
    audit: Audit
    """Where a run that executes records what it does."""
    clock: Clock
    fence: Fence
    fencing_token: int
    rows_path: str
    neighbours: Mapping[TableRef, tuple[Location, ...]]
    neighbours_problem: str | None = None
    """Why the places of the tables next door are not known, if they are not."""
    preconditions: Callable[[TableState], Awaitable[None]] = _nothing_new
    """Asked before the first change, since planning may have taken hours: raises Refused if a person holds the table
    back by now, or another table has come into its place."""
    check_time: Callable[[timedelta], Awaitable[Refusal | None]] = _clock_is_right
    """Refuses while this machine's clock is not to be believed; given what `max_clock_skew_minutes` allows."""
    ask_owners: Callable[[], Awaitable[None]] = nobody_objects
    """Asked before every request of a sweep: raises Refused if a person holds the table back by now."""
    lent: Lent = nothing_lent
    """Tells which files in the table's places other tables use: they stay, whatever this table says of them."""
    identify: Callable[[Iterable[Location]], Awaitable[guards.Standings]] = _no_standings
    """Tells which local places are one directory under several names."""
    inventory: Location | None = None
    """A ready file list to read instead of listing."""
    artifacts: Artifacts | None = None
    """Where the plan and the ledger are kept; by default beside the plan's rows."""
    stop: asyncio.Event = field(default_factory=StopRequest)
    """Set from outside to end the run: planning at once, a sweep after its running requests."""
    listings: Slots | None = None
    """Places for planning that all tables share."""
    places: Slots | None = None
    """Places for deletion batches that all tables share."""
    progress: ReportProgress = _silent
    _latest: CleanupRun | None = field(init=False, default=None)
    _planned: _Planned = field(init=False)
    _kept: Artifacts = field(init=False)
    _ledger: Ledger = field(init=False)
    _place_is_own: bool = field(init=False, default=False)
    _closing: RunRecorder = field(init=False)

    def __post_init__(self) -> None:
        self._kept = self.artifacts or Artifacts(Path(self.rows_path).parent.parent)
        self._ledger = Ledger(
            table=self.table.ref.label,
            run_id=self.run_id,
            confirm_after=self.policy.confirm_after,
            state=self.state,
            artifacts=self._kept,
            fence=self.fence,
        )
        audit = self.audit if self.execute else None
        self._closing = RunRecorder(ledger=self._ledger, audit=audit, state=self.state, clock=self.clock)

    async def run(self) -> CleanupRun:
        """One table, whatever happens: trouble becomes the outcome, never an exception of the table's own."""
        run = CleanupRun(id=self.run_id, table=self.table.ref, location=None, started_at=self.clock.now())
        await interrupted_runs.close_interrupted(self.state, self.table.ref.label, run.started_at)
        await self.state.start_run(run)
        try:
            run = await cancel_on(self.stop, self._plan(run), f"plan {self.table.ref}")
            run = await self._execute(run)
        except Refused as exc:
            run = self._refuse(self._last(run), Refusal(code=exc.code, reason=exc.reason))
        except Indeterminate as exc:
            refusal = Refusal(code="indeterminate", reason=str(exc))
            run = replace(self._last(run), refusal=refusal, outcome=Outcome.FAILED, reason=str(exc))
        except LakesweepError as exc:
            run = replace(self._last(run), outcome=Outcome.FAILED, reason=str(exc))
        return await self._closing.finish(await self._closing.settle(self._located(run)))

    async def abandon(self, why: LakesweepError) -> CleanupRun:
        """Finish a run that was cancelled from outside, with everything known up to then."""
        run = CleanupRun(id=self.run_id, table=self.table.ref, location=None, started_at=self.clock.now())
        return await self._closing.finish(replace(self._last(run), outcome=Outcome.FAILED, reason=str(why)))

    async def _plan(self, run: CleanupRun) -> CleanupRun:
        """Steps that change nothing, once there is a place for them: what is read before the wait would be old."""
        if self.listings is None:
            return await self._plan_now(run)
        if self.listings.locked():
            await self.table.head()  # one that does not answer must not wait for a place that others could use
        async with self.listings:
            return await self._plan_now(run)

    async def _plan_now(self, run: CleanupRun) -> CleanupRun:
        """Load, list, mark, judge, check, save."""
        # The time comes first: no snapshot that is committed from here on is old enough to expire.
        now, store_now = self.clock.now(), await self.storage.now()
        untimely = await self.check_time(self.policy.max_clock_skew)
        before_listing = await self.table.load()
        run = self._note(run, location=before_listing.location.raw, head=before_listing.head)
        engine, choice = self.choose_engine(before_listing)
        why_longer = grace.sentence(self.policy, before_listing)
        run = self._note(run, engine=choice, stream=why_longer, phase=Phase.DETECTING)
        marking = Marking(table=self.table, state=self.state, policy=self.policy, now=now, lent=self.lent)
        beside = await foreign_metadata.beside_head(self.storage, before_listing) if self.inventory else frozenset()
        job = OrphanJob(
            ref=self.table.ref,
            roots=before_listing.roots,
            layout=before_listing.layout,
            cutoff=guards.cutoff(self.policy, grace.span(self.policy, before_listing), now, store_now),
            mark=marking,
            rows_path=self.rows_path,
            inventory=self._inventory(now, store_now),
            shortlist=before_listing.shortlist,
            history=before_listing.history,
        )
        plan = await self._find_orphans(engine, job, marking)
        marked, expiry = marking.result()
        plan = await self._ledger.hold_back(plan, expiry, now, self.clock.now())
        run = self._note(run, plan=plan, expiry=expiry, head=marked.state.head, phase=Phase.CHECKING)
        self._planned = _Planned(engine=engine, marked=marked, expiry=expiry, at=now)
        places = (place for where in self.neighbours.values() for place in where)
        standings = await self.identify((*marked.state.roots, *places))
        refusal = (
            untimely
            or guards.check_clock(self.policy, now, store_now)
            or guards.check_tenant_root(marked.state, self.tenant_root)
            or guards.check_neighbours(self.neighbours_problem)
            or guards.check_overlap(marked.state, self.neighbours, standings)
            or guards.check_stayed(before_listing, marked.state)
            or await KnownRoots(store=self.state).set_back(marked.state)
            or await self._check_plan(plan, marked, beside)
        )
        await self._save(plan)
        if refusal:
            return self._refuse(run, refusal)
        return run

    async def _find_orphans(self, engine: Engine, job: OrphanJob, marking: Marking) -> OrphanPlan:
        """Once more if something could not be read and the table has moved on since it was marked: others expire too,
        and what they took along is no damage."""
        try:
            return await engine.find_orphans(job)
        except Unreadable:
            if not await marking.is_outdated():
                raise
        return await engine.find_orphans(job)

    def _inventory(self, now: datetime, store_now: datetime) -> Inventory | None:
        if self.inventory is None:
            return None
        return Inventory(
            address=self.inventory,
            not_before=min(now, store_now) - self.policy.grace_period,
            not_after=max(now, store_now) + self.policy.max_clock_skew,
        )

    async def _execute(self, run: CleanupRun) -> CleanupRun:
        """Steps that change things: commit the expiry, sweep, and tidy up after it."""
        plan, expiry = run.plan, run.expiry
        if run.outcome is not None or plan is None or expiry is None:
            return run
        if not self.execute:
            return replace(run, outcome=Outcome.DRY_RUN, reason="nothing was changed")
        if not self.table.executable:
            raise Refused("plan_only", _PLAN_ONLY)
        if self.stop.is_set():
            raise interruption(self.stop)
        await self.preconditions(self._planned.marked.state)
        await self._check_lent(self._planned.marked)
        await self.audit.begin(run)
        run = await self._commit_expiry(self._note(run, phase=Phase.EXPIRING), expiry)
        run = self._note(run, phase=Phase.SWEEPING)
        await self.state.update_run(run)
        run = await self._sweep(run, plan)
        if run.outcome is None:
            await self.table.after_sweep(self._planned.marked.state, run.expiry or expiry)
            await self.state.set_pending_expiry(self.table.ref.label, None, self.run_id)
            if self._place_is_own:
                await KnownRoots(store=self.state).remember(self._planned.marked.state)
            run = replace(run, outcome=Outcome.DONE)
        return run

    async def _check_lent(self, marked: Marked) -> None:
        if not set(await self.lent(marked.state)) <= set(marked.references.tolerated):
            raise Refused("table_changed", _LENT_SINCE)

    async def _commit_expiry(self, run: CleanupRun, planned: ExpiryPlan) -> CleanupRun:
        if planned.empty:
            return run
        state = self._planned.marked.state
        # A crash between this commit and the sweep must not forget which files the expiry set free.
        if await self.state.pending_expiry(self.table.ref.label) is None:
            await self.state.set_pending_expiry(self.table.ref.label, state.head, self.run_id)
        await self.audit.expiring(planned)
        await self.fence.check()
        # By the time of the plan: a clock that was set meanwhile must not expire more than was checked.
        _, committed = await self.table.commit_expiry(state, self.policy, self._planned.at, self.fence)
        run = self._note(
            run,
            expiry=committed,
            expired_snapshots=tuple(snapshot.id for snapshot in committed.expire),
            expired_partitions=committed.partitions,
        )
        await self.audit.expired(committed)
        return run

    async def _sweep(self, run: CleanupRun, plan: OrphanPlan) -> CleanupRun:
        planned = self._planned
        deleter = self.open_deleter(planned.marked.state)
        sweeping = sweep.Sweep(
            run_id=self.run_id,
            plan=plan,
            match_by=planned.marked.state.layout.match_by,
            policy=self.policy,
            deleter=deleter,
            journal=self.state,
            audit=self.audit,
            fence=self.fence,
            fencing_token=self.fencing_token,
            revalidate=Revalidator(
                table=self.table,
                engine=planned.engine,
                planned=planned.marked,
                expiring=planned.expiry,
                committed=run.expiry or planned.expiry,
            ),
            stop=self.stop,
            progress=self.progress,
            recheck=VerifyUnchanged(self.storage) if self.inventory else None,
            closed=self.table.closed if isinstance(self.table, ClosesFirst) else None,
            places=self.places,
            ask_owners=self.ask_owners,
        )
        try:
            result = await sweeping.run()
        finally:
            # A sweep that is cancelled has deleted what it has deleted.
            run = self._note(run, deletion=sweeping.result.report, spared=sweeping.result.spared)
            await deleter.aclose()
        if result.stopped_by is not None:
            raise result.stopped_by
        if result.interrupted:
            raise interruption(self.stop)
        if result.report.failed:
            first = result.report.failed[0]
            reason = f"{len(result.report.failed)} objects could not be deleted (first: {first.path}: {first.why})"
            return replace(run, outcome=Outcome.FAILED, reason=reason)
        return run

    async def _check_plan(self, plan: OrphanPlan, marked: Marked, beside: frozenset[str]) -> Refusal | None:
        state = marked.state
        metadata: Sequence[str] = plan.unreferenced_metadata
        if self.inventory:
            metadata = await foreign_metadata.unreferenced(self.storage, state, marked.references, metadata, beside)
        foreign_owner = await self.table.foreign_owner(state, metadata)
        if foreign_owner:
            looked_at = await interrupted_deletes.metadata_of(self.state, self._kept, self.table.ref.label, plan)
            if looked_at:
                metadata = [path for path in metadata if path not in looked_at]
                foreign_owner = await self.table.foreign_owner(state, metadata)
        new_place = await KnownRoots(store=self.state).new_place(state)
        self._place_is_own = new_place is None or holds_only_its_own(plan)
        refusal = guards.check_plan(plan, state, self.policy, foreign_owner, new_place=new_place)
        if refusal and refusal.code == "missing_live_files":
            refusal = replace(refusal, reason=refusal.reason + await explain_missing.explain(plan.missing, state.roots))
        if refusal is None or not consequences(refusal.code).approvable:
            return refusal
        approvals = Approvals(state=self.state, artifacts=self._kept)
        approved = await approvals.covered(self.table.ref.label, plan, self.clock.now())
        refusal = guards.check_plan(plan, state, self.policy, foreign_owner, approved, new_place=new_place)
        self._place_is_own |= refusal is None
        return refusal

    async def _save(self, plan: OrphanPlan) -> None:
        address = await self._kept.publish(Path(plan.rows_path))
        await self.state.save_plan(
            PlanHeader(
                run_id=self.run_id,
                table=self.table.ref.label,
                head=plan.head,
                digest=plan.digest,
                rows_path=address,
                candidates=plan.candidates.files,
                bytes=plan.candidates.bytes,
                created_at=self.clock.now(),
            )
        )

    def _located(self, run: CleanupRun) -> CleanupRun:
        """A table that could not be loaded has a place all the same."""
        place = self.table.place() if run.location is None else None
        return replace(run, location=place.raw) if place else run

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


_LENT_SINCE = "another table began to use files of this one while it was planned: the next cycle keeps them"
_PLAN_ONLY = (
    "a bare Iceberg location has no catalog, so nothing proves which metadata is current: "
    "configure the table's catalog to execute this plan"
)
