"""The planning half of a cycle: load, list, mark, judge, check, save. Changes nothing.

It ends in a `Planned` value, which the executing half takes over, or which carries the refusal that stopped it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lakesweep.cleanup import guards, table_notes, unlisted, without_listing
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.check import check, check_trash
from lakesweep.cleanup.estimate import Estimate
from lakesweep.cleanup.mark import Marking
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.cleanup.run_recorder import RunRecorder
from lakesweep.cleanup.without_listing import Names
from lakesweep.model import store_rules
from lakesweep.model.errors import Unreadable
from lakesweep.model.files import OrphanPlan
from lakesweep.model.run import Phase, Refusal
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.model.table import TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.engine import Engine, Everything, Inventory, Marked, OrphanJob
from lakesweep.ports.run import Progress
from lakesweep.ports.state import PlanHeader, StateStore
from lakesweep.ports.table import TableView


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A checked plan: what is to be deleted, the state of the table it is for, and the refusal if there is one."""

    engine: Engine
    marked: Marked
    expiry: ExpiryPlan
    orphans: OrphanPlan
    at: datetime
    """The time that ages were counted to."""
    refusal: Refusal | None
    place_is_own: bool
    """Are the table's roots proven to be its own? Then they are remembered once the run has ended well."""


async def plan(ports: Ports, context: RunContext, recorder: RunRecorder) -> Planned:
    """Plan once there is a slot: what was read before the wait would be stale."""
    if context.listing_slots is None:
        return await _plan_now(ports, context, recorder)
    if context.listing_slots.locked():
        await ports.table.head()  # one that does not answer must not wait for a slot that others could use
    async with context.listing_slots:
        return await _plan_now(ports, context, recorder)


async def _plan_now(ports: Ports, context: RunContext, recorder: RunRecorder) -> Planned:
    policy = context.policy
    neighbours = await ports.surroundings.neighbours()
    # The time comes first: no snapshot that is committed from here on is old enough to expire.
    now = ports.clock.now()
    clock_refusal = await ports.surroundings.check_clock(policy.max_clock_skew)
    before_listing = await ports.table.load()
    # The store's clock only after the store has answered: before that it is not known which store is asked.
    asked_at, store_now = ports.clock.now(), await ports.storage.now()
    recorder.note(location=before_listing.location.raw, head=before_listing.head)
    engine, choice = await ports.choose_engine(before_listing)
    recorder.note(engine=choice, stream=guards.grace_sentence(policy, before_listing), phase=Phase.DETECTING)
    marking = Marking(
        table=ports.table,
        state=ports.state,
        policy=policy,
        now=now,
        surroundings=ports.surroundings,
        requests=recorder.requests,
    )
    look = await without_listing.choose(ports, context, before_listing, engine=engine, marking=marking)
    job, beside = await _job(ports, context, before_listing, names=look.names, marking=marking, store_now=store_now)
    orphans = await _find_orphans(ports, engine, job, marking)
    marked, expiry = marking.result()
    orphans = await recorder.ledger.hold_back(orphans, expiry, now, ports.clock.now())
    recorder.note(
        plan=orphans,
        expiry=expiry,
        head=marked.state.head,
        shared_files=marking.shared_files,
        last_listed_at=now if orphans.listed else look.last.at,
        listed_because=look.listed_because,
        phase=Phase.CHECKING,
    )
    rules = store_rules.of_all([await ports.rules.rules(root) for root in marked.state.roots])
    recorder.note(store=rules, to_trash=context.trash is not None)
    refusal, place_is_own = await check(
        ports,
        context,
        orphans=orphans,
        marked=marked,
        neighbours=neighbours,
        early_refusal=clock_refusal
        or guards.check_clock(policy, asked_at, store_now)
        or guards.check_tenant_root(marked.state, context.tenant_root)
        or await check_trash(context.trash, marked.state, neighbours),
        before_listing=before_listing,
        beside=beside,
    )
    if orphans.listed:
        await table_notes.remember_listing(ports.state, marked.state, at=now, passed=refusal is None)
    await save(orphans, ports.state, ports.artifacts, ports.clock, run_id=context.run_id, table=ports.table.ref)
    planned = Planned(
        engine=engine,
        marked=marked,
        expiry=expiry,
        orphans=orphans,
        at=now,
        refusal=refusal,
        place_is_own=place_is_own,
    )
    estimate = Estimate(ports=ports, context=context, recorder=recorder, plan=planned, load=marking.loading)
    recorder.note(planned=await estimate.of_cycle())
    return planned


async def _job(
    ports: Ports, context: RunContext, view: TableView, *, names: Names | None, marking: Marking, store_now: datetime
) -> tuple[OrphanJob, frozenset[str] | None]:
    """What the engine is asked for; and metadata that no listing shows, or that an inventory is too old to know: None
    where a listing shows all."""
    policy, now = context.policy, marking.now
    inventory = _inventory(context, view, now, store_now) if names is None else None
    beside = names.beside if names else None
    if inventory:
        beside = await unlisted.beside_head(ports.storage, view)
    shortlist = names.files.shortlist if names else view.shortlist
    job = OrphanJob(
        ref=ports.table.ref,
        roots=view.roots,
        layout=view.layout,
        cutoff=guards.cutoff(policy, guards.grace(policy, view), now, store_now),
        mark=names.after(marking) if names else marking,
        rows_path=context.rows_path,
        look_at=shortlist or inventory or Everything(),
        report_step=lambda step: context.progress(Progress(phase=f"{Phase.DETECTING}: {step}")),
    )
    return job, beside


async def _find_orphans(ports: Ports, engine: Engine, job: OrphanJob, marking: Marking) -> OrphanPlan:
    """What the table itself uses of others is read afterwards, also if this fails."""
    try:
        found = await _found(engine, job, marking)
    except Exception:
        await ports.surroundings.read_own()
        raise
    await ports.surroundings.read_own()
    return await unlisted.outside_files(found, ports.storage, job.roots, marking.is_outdated)


async def _found(engine: Engine, job: OrphanJob, marking: Marking) -> OrphanPlan:
    """Try once more if something could not be read and the table has changed since it was marked: another program may
    have expired snapshots and deleted their files, which is not damage."""
    try:
        return await engine.find_orphans(job)
    except Unreadable:
        if not await marking.is_outdated():
            raise
    return await engine.find_orphans(job)


def _inventory(context: RunContext, view: TableView, now: datetime, store_now: datetime) -> Inventory | None:
    if context.inventory is None:
        return None
    return Inventory(
        address=context.inventory,
        not_before=min(now, store_now) - context.policy.grace_period,
        not_after=max(now, store_now) + context.policy.max_clock_skew,
        asked=view.history,
    )


async def save(
    plan: OrphanPlan, state: StateStore, artifacts: Artifacts, clock: Clock, *, run_id: str, table: TableRef
) -> None:
    """Publish the rows, then record the plan: nobody finds one without its rows."""
    address = await artifacts.publish(Path(plan.rows_path))
    header = PlanHeader(
        run_id=run_id,
        table=table.label,
        head=plan.head,
        digest=plan.digest,
        rows_path=address,
        candidates=plan.candidates.files,
        bytes=plan.candidates.bytes,
        created_at=clock.now(),
    )
    await state.save_plan(header)
