"""Empty the trash of every tenant when its time has come. A run of its own, with plan, journal, audit and outcome.

Only what a run of ours moved there goes, at the earliest `trash_hours` after the end of that run, and through a gate
that lets nothing through but the directories of those runs. Tables that are paused, dry, not enabled or no
longer configured keep their trash. Other files in it stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakesweep.aio import StopRequest, working_for
from lakesweep.cleanup import plan as plans
from lakesweep.cleanup import plan_file, run_recorder, trash_report
from lakesweep.cleanup.run_context import silent
from lakesweep.cleanup.sweep import Sweep
from lakesweep.cleanup.trash_content import RunInTrash, TrashContent
from lakesweep.daemon import holds, run_results
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.lease import HeldLease
from lakesweep.model import run_document, trash_document
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import LakesweepError, Refused
from lakesweep.model.files import OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.run import CleanupRun, Outcome, Phase
from lakesweep.model.table import BARE_TENANT, FormatName, TableRef, TenantId
from lakesweep.ports.audit import Audit
from lakesweep.ports.table import MatchBy
from lakesweep.settings.cascade import cleanup_for, policy_for, trash_places
from lakesweep.settings.tenants import TenantSettings

log = structlog.get_logger()

EVERY_SECONDS = 3600.0
DATASET = ".trash"
"""Stands for the dataset in the name of a run that empties; no dataset's place is looked for under it."""


async def run(current: Callable[[], App]) -> None:
    while True:
        for tenant in current().settings.tenants:
            try:
                await empty(current(), tenant)
            except LakesweepError as exc:
                log.warning("trash_not_emptied", tenant=tenant.id, reason=str(exc))
            except Exception as exc:  # noqa: BLE001 - a bug that one tenant's trash meets must not stop the service
                run_results.unexpected(exc)
        await asyncio.sleep(EVERY_SECONDS)


def contents(app: App, tenant: TenantSettings) -> list[TrashContent]:
    def hours(document: run_document.Run) -> timedelta:
        return timedelta(hours=cleanup_for(app.settings, *document["table"].split("/", 2)).trash_hours)

    return [
        TrashContent(
            place=place,
            tenant=tenant.id,
            storage=app.adapters.storage(tenant.id),
            state=app.state,
            artifacts=app.artifacts,
            hours=hours,
        )
        for place in trash_places(app.settings, tenant)
    ]


async def shown(app: App, tenant: TenantSettings) -> list[trash_document.TrashPlace]:
    places: list[trash_document.TrashPlace] = []
    for content in contents(app, tenant):
        runs: list[trash_document.TrashRun] = []
        foreign = Tally()
        async for one in content.runs():
            files = await content.tally(one)
            if one.document is None:
                foreign += files
            elif files.files:
                runs.append(trash_report.run_document(one.document, files, one.until))
        places.append(trash_report.place_document(tenant.id, content.place.raw, runs, foreign))
    return places


async def empty(app: App, tenant: TenantSettings) -> list[CleanupRun]:
    """Empty what is due of one tenant's trash: one run for each place with something due."""
    ended: list[CleanupRun] = []
    for content in contents(app, tenant):
        due = [run async for run in content.runs() if await _is_due(app, content, run)]
        emptying = _Emptying(app, content, due)
        rows = await emptying.rows()
        with suppress(Refused), working_for(tenant.id):  # another replica is at it
            if rows.num_rows:
                ended.append(await emptying.run(rows))
            else:
                await emptying.close_interrupted()
        for one in due:
            if content.place.is_local:  # object stores have no directories
                await app.adapters.remove_empty(tenant.id, content.place, content.place.join(one.name))
    return ended


async def _is_due(app: App, content: TrashContent, run: RunInTrash) -> bool:
    """Whether its time is over by the slower clock, and the settings let the service delete there."""
    if run.document is None or run.until is None:
        return False
    now = min(app.clock.now(), await content.storage.now())
    names = run.document["table"].split("/", 2)
    allowed = (
        _is_configured(app, *names)
        and cleanup_for(app.settings, *names).enabled
        and not policy_for(app.settings, *names).dry_run
    )
    try:
        await holds.refuse_held(app.state, run.document["table"])
    except Refused:
        return False
    return allowed and now >= run.until


def _is_configured(app: App, tenant: str, dataset: str, _table: str) -> bool:
    """Of a dataset that is no longer configured nobody knows its own trash_hours, dry_run and enabled."""
    owner = app.settings.tenant(tenant)
    return tenant == BARE_TENANT or (owner is not None and owner.dataset(dataset) is not None)


class _Emptying:
    def __init__(self, app: App, content: TrashContent, due: list[RunInTrash]) -> None:
        self._app = app
        self._content = content
        self._due = due
        self._id = new_run_id()
        self._ref = TableRef(
            tenant=TenantId(content.tenant), dataset=DATASET, name="emptied", format=next(iter(FormatName))
        )

    async def rows(self) -> pa.Table:
        """All that is due, as rows of a plan by path."""
        app, rows = self._app, pa.Table.from_batches([], plan_file.PLAN_SCHEMA)
        store_now = await self._content.storage.now()
        for one in self._due:
            stays = self._content.hours(one.document) if one.document else timedelta.max
            cutoff = min(app.clock.now(), store_now) - stays
            async for batch in self._content.ours(one):
                rows = pa.concat_tables([rows, _as_rows(batch, cutoff)])
        return rows.sort_by("path").combine_chunks()

    async def run(self, rows: pa.Table) -> CleanupRun:
        """Delete these, as a plan that can be shown, journalled and checked like any other."""
        app = self._app
        async with app.claimed(self._ref, self._id) as held:
            await run_recorder.close_interrupted(self._app.state, self._ref.label, self._app.clock.now())
            run = CleanupRun(
                id=self._id,
                table=self._ref,
                location=self._content.place.raw,
                started_at=app.clock.now(),
                phase=Phase.SWEEPING,
            )
            plan = self._plan(rows)
            run = replace(run, plan=plan, head=plan.head)
            await app.state.start_run(run)
            audit = app.trails.open(self._id, self._ref, held.token, _SERVICE)
            await plans.save(plan, app.state, app.artifacts, app.clock, run_id=self._id, table=self._ref)
            await audit.begin(run)
            run = await self._sweep(run, plan, held, audit)
            run = replace(run, phase=Phase.FINISHED, finished_at=app.clock.now())
            await audit.end(run)
            await app.state.update_run(run)
        app.metrics.count_emptied(run)
        log.info("trash_emptied", tenant=self._content.tenant, files=run.deletion.deleted.files, outcome=run.outcome)
        return run

    async def close_interrupted(self) -> None:
        """Close runs whose process ended when all was deleted already: then nothing is due that would start another."""
        if await self._app.state.open_runs(self._ref.label):
            async with self._app.claimed(self._ref, self._id):
                await run_recorder.close_interrupted(self._app.state, self._ref.label, self._app.clock.now())

    async def _sweep(self, run: CleanupRun, plan: OrphanPlan, held: HeldLease, audit: Audit) -> CleanupRun:
        app = self._app
        policy = policy_for(app.settings, self._content.tenant)
        deleter = app.adapters.trash_deleter(self._content.tenant, self._content.place, [one.name for one in self._due])

        async def nothing() -> frozenset[str]:
            return frozenset()

        async def check_not_held() -> None:
            for one in self._due:
                await holds.refuse_held(app.state, one.document["table"] if one.document else "")

        sweep = Sweep(
            run_id=self._id,
            plan=plan,
            match_by=MatchBy.ADDRESS,
            policy=policy,
            deleter=deleter,
            journal=app.state,
            audit=audit,
            fence=held,
            revalidate=nothing,
            stop=StopRequest(),
            progress=silent,
            check_not_held=check_not_held,
        )
        try:
            async with held.guarding():
                result = await sweep.run()
        except LakesweepError as exc:
            return replace(run, deletion=sweep.result.report, outcome=Outcome.FAILED, reason=str(exc))
        finally:
            await deleter.aclose()
        run = replace(run, deletion=result.report, spared=result.spared)
        if result.stopped_by is not None:
            return replace(run, outcome=Outcome.FAILED, reason=str(result.stopped_by))
        if result.report.failed:
            first = result.report.failed[0]
            return replace(run, outcome=Outcome.FAILED, reason=f"{first.path}: {first.why}")
        return replace(run, outcome=Outcome.DONE)

    def _plan(self, rows: pa.Table) -> OrphanPlan:
        app = self._app
        path = app.artifacts.file("plans", f"{self._id}.parquet")
        with plan_file.PlanWriter(str(path)) as writer:
            for batch in rows.to_batches():
                writer.write(batch)
        tally = Tally(files=rows.num_rows, bytes=pc.sum(rows.column("size_bytes"), min_count=0).as_py())
        return OrphanPlan(
            head=", ".join(one.name for one in self._due),
            cutoff=app.clock.now(),
            verdicts={Verdict.ORPHAN: tally},
            candidates=tally,
            by_kind={"trash": tally},
            by_reason={Reason.EXPIRED: tally},
            missing=(),
            missing_count=0,
            references=0,
            matched=0,
            rows_path=str(path),
            digest=writer.digest,
            engine="trash",
        )


_SERVICE = Trigger(by=TriggeredBy.SCHEDULE, who="service")


def _as_rows(batch: pa.RecordBatch, cutoff: datetime) -> pa.Table:
    """Rows of a plan, of those objects that the store itself says are old enough. One of unknown age stays."""
    modified = batch.column("modified_at")
    old = pc.fill_null(pc.less(modified, pa.scalar(cutoff, modified.type)), False)
    listed = batch.filter(old)
    decided = (pa.scalar("trash"), pa.scalar(Reason.EXPIRED.value), pa.scalar(0, pa.int32()))
    columns = [*listed.columns, *(pa.repeat(value, listed.num_rows) for value in decided)]
    return pa.Table.from_arrays(columns, schema=plan_file.PLAN_SCHEMA)
