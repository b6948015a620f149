"""The service as the API sees it: questions go to the state store and the scheduler, requests to the scheduler.

Implements `admin.backend.AdminBackend`. The API decides who may call; nothing here knows a token.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from lakesweep.admin import documents
from lakesweep.admin.backend import Health, PlanPage
from lakesweep.aio import finish_shielded, working_for
from lakesweep.cleanup import plan_groups, report, trash_report
from lakesweep.cleanup.explain import Explanation
from lakesweep.cleanup.restore_finder import refuse_nothing
from lakesweep.daemon import cadence, holds, table_status
from lakesweep.daemon import lake_report as gather_report
from lakesweep.daemon.app import App, new_run_id
from lakesweep.daemon.discovery import whole_dataset
from lakesweep.daemon.health import Checkup
from lakesweep.daemon.holds import HoldIndex
from lakesweep.daemon.known_tables import Entry
from lakesweep.daemon.scheduler import Scheduler
from lakesweep.daemon.table_status import TableStatus
from lakesweep.model import lake_report, run_document, trash_document
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import LakesweepError, Refused, StorageError, UnknownTable, Unreadable
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import CleanupRun, Outcome
from lakesweep.ports.state import Approval, BatchRecord, DueTime, Hold
from lakesweep.settings import effective
from lakesweep.settings.cascade import cleanup_for

log = structlog.get_logger()

REPORT_SECONDS = 10
"""How old a report of a small lake may be when the API returns it."""
GROUPS_KEPT = 100
"""Plans whose parts are remembered."""


class AdminService:
    """Everything the API needs of one replica."""

    def __init__(self, scheduler: Scheduler, checkup: Checkup) -> None:
        self._scheduler = scheduler
        self._checkup = checkup
        self._groups: dict[str, plan_groups.PlanGroups] = {}
        self._reports: dict[tuple[str, ...] | None, tuple[float, lake_report.Report]] = {}
        """By tenants: until when it is kept, and the report."""
        self._reporting = asyncio.Lock()

    @property
    def _app(self) -> App:
        return self._scheduler.app

    async def tables(self, tenants: Collection[str] | None, *, after: str | None, limit: int) -> list[documents.Table]:
        """Known tables by name, and datasets whose tables are not known because they cannot be looked at."""
        # As the state store has them: the scheduler's own may be some seconds old.
        held = HoldIndex(await self._app.state.holds())
        unseen = self._unseen()
        known = self._scheduler.known_tables.entries.keys() | unseen.keys()
        labels = sorted(label for label in known if tenants is None or label.partition("/")[0] in tenants)
        first = bisect_right(labels, after) if after is not None else 0
        page = labels[first : first + limit]
        last = await self._app.state.last_runs(page)
        return [unseen.get(label) or await self._table(label, held, last.get(label)) for label in page]

    async def report(self, tenants: Collection[str] | None) -> lake_report.Report:
        """Of the tables that this replica knows. It reads a run of every table, so only one is made at a time. It is
        kept for some seconds or, of a large lake, for twenty times as long as it took."""
        key = None if tenants is None else tuple(sorted(tenants))
        async with self._reporting:
            kept, began = self._reports.get(key), time.monotonic()
            if kept is None or began >= kept[0]:
                made = await gather_report.make(
                    self._app.settings, self._app.state, self._app.clock, self._named(tenants), tenants
                )
                now = time.monotonic()
                self._reports = {one: old for one, old in self._reports.items() if now < old[0]}
                kept = self._reports[key] = (now + max(REPORT_SECONDS, 20 * (now - began)), made)
            return kept[1]

    def _named(self, tenants: Collection[str] | None) -> list[gather_report.Named]:
        known = self._scheduler.known_tables
        formats = {label: table["format"] for label, table in self._unseen().items()}
        formats |= {label: entry.work.ref.format for label, entry in known.entries.items()}
        return [
            gather_report.Named(label=label, format=format_, problem=known.problems.get(_dataset(label)))
            for label, format_ in sorted(formats.items())
            if tenants is None or label.partition("/")[0] in tenants
        ]

    def _changed(self) -> None:
        """Somebody changed holds or due times: the kept reports are void, and the scheduler looks again."""
        self._reports = {}
        self._scheduler.invalidate()

    async def start_run(self, table: str, *, execute: bool, who: str) -> str:
        run_id = self._scheduler.request(table, execute=execute, trigger=Trigger(by=TriggeredBy.API, who=who))
        log.info("run_requested", requested_run=run_id, table=table, execute=execute, by=who)
        return run_id

    async def hint(self, table: str, *, event: str, who: str) -> datetime:
        """For all replicas. Never sooner after its last cycle than `min_interval_hours`, however many hints come."""
        ref = self._entry(table).work.ref
        state, now = self._app.state, self._app.clock.now()
        known = await state.get_due(table) or DueTime(table=table, next_due=now)
        cleanup = cleanup_for(self._app.settings, ref.tenant, ref.dataset, ref.name)
        rest = timedelta(hours=cleanup.min_interval_hours)
        soonest = now if known.last_finished is None else max(now, known.last_finished + rest)
        due = replace(known, next_due=min(known.next_due, soonest))
        await state.set_due(due)
        await cadence.pull_forward(state, table, due.next_due)
        log.info("hint_taken", table=table, told=event, next_due=due.next_due, by=who)
        self._scheduler.invalidate()
        return due.next_due

    async def runs(
        self, *, tenants: Collection[str] | None, table: str | None, before: str | None, limit: int
    ) -> list[run_document.Run]:
        return await self._app.state.list_runs(tenants=tenants, table=table, before=before, limit=limit)

    async def run(self, run_id: str) -> run_document.Run | None:
        """One that still waits here for its turn is in no state store yet."""
        scheduled = self._scheduler.waiting_or_running(run_id)
        recorded = await self._app.state.get_run(run_id)
        if recorded is not None or scheduled is None:
            return recorded
        return report.run_document(
            CleanupRun(id=run_id, table=scheduled.entry.work.ref, location=None, started_at=scheduled.since)
        )

    async def plan(self, run_id: str, *, offset: int, limit: int, text: str = "") -> PlanPage | None:
        """Rows that are no longer kept are as good as none."""
        header = await self._app.state.get_plan(run_id)
        if header is None or not header.rows_path:
            return None
        artifacts, rows_path = self._app.artifacts, header.rows_path
        with _rows_may_be_gone(run_id):
            if not text:
                files = await artifacts.page(rows_path, offset, limit)
                return PlanPage(header=header, files=files, matching=header.candidates)
            async with artifacts.opened(rows_path) as local:
                files, matching = await asyncio.to_thread(plan_groups.search, local, text, offset, limit)
                return PlanPage(header=header, files=files, matching=matching)
        return None

    async def plan_groups(self, run_id: str) -> plan_groups.PlanGroups | None:
        """A plan never changes, so what it consists of is kept."""
        header = None if run_id in self._groups else await self._app.state.get_plan(run_id)
        if header is not None and header.rows_path:
            with _rows_may_be_gone(run_id):
                async with self._app.artifacts.opened(header.rows_path) as local:
                    found = await asyncio.to_thread(plan_groups.groups, local)
                if len(self._groups) >= GROUPS_KEPT:
                    self._groups.pop(next(iter(self._groups)))
                self._groups[run_id] = found
        return self._groups.get(run_id)

    async def batches(self, run_id: str) -> list[BatchRecord]:
        return await self._app.state.journal(run_id)

    async def explain(self, table: str, path: str) -> Explanation:
        self._entry(table)
        return await self._app.explain(path, target=table)

    async def table_detail(self, table: str) -> documents.TableDetail:
        return await table_status.detail(self._app, self._entry(table), self._scheduler.due_at(table))

    async def snapshots(self, table: str) -> documents.Snapshots:
        """One tenant's requests are counted as its own."""
        entry = self._entry(table)
        with working_for(entry.work.tenant):
            return await table_status.snapshots(entry.app, entry)

    def _entry(self, table: str) -> Entry:
        entry = self._scheduler.known_tables.entries.get(table)
        if entry is None:
            raise UnknownTable(f"no table {table} is known")
        return entry

    async def settings_of(self, table: str) -> list[documents.Setting]:
        """The rules of cleaning only; the rest of the settings is for the operator alone."""
        self._entry(table)
        in_effect = effective.for_table(self._app.settings, lambda _: None, *table.split("/", 2))
        rules = (one for one in in_effect if one.name.startswith("orphan_cleanup."))
        return [{"name": one.name, "value": one.value, "level": one.level.value} for one in rules]

    async def approve(self, run_id: str, *, digest: str | None, who: str) -> Approval:
        approval = await self._app.approve(run_id, by=who, digest=digest)
        log.info("plan_approved", approved_run=run_id, by=who)
        self._changed()
        return approval

    async def restore(
        self, run_id: str, *, paths: Sequence[str], dry_run: bool, who: str, admin: bool
    ) -> trash_document.Restoration:
        """At once, in this process: it holds the table's lease like a run. The caller may disconnect meanwhile."""
        restoring = self._app.restoring(run_id, paths, Trigger(by=TriggeredBy.API, who=who), admin=admin)
        undone = await (restoring.plan() if dry_run else finish_shielded(restoring.execute(new_run_id())))
        if undone.run is not None and undone.run.outcome is Outcome.FAILED:
            raise LakesweepError(undone.run.reason or "failed")
        refuse_nothing(undone.result, dry_run=undone.of_dry_run)
        self._scheduler.invalidate()
        return trash_report.restore_document(undone.result, paused=undone.paused)

    async def cancel(self, run_id: str, *, who: str) -> None:
        """Only runs of this replica: those of another one can be cancelled only there."""
        if not self._scheduler.cancel(run_id):
            raise Refused(RefusalCode.NOT_RUNNING, f"run {run_id} has ended, or another replica works on it")
        log.info("run_cancelled", cancelled_run=run_id, by=who)

    def approval_remark(self, table: str) -> str | None:
        return self._app.approval_remark(table)

    async def pause(
        self,
        scope: str,
        *,
        who: str,
        reason: str | None,
        admin: bool,
        force: bool = False,
        ends_at: datetime | None = None,
    ) -> None:
        if not force:
            await holds.check_names_a_table(self._app, scope, self._scheduler.known_tables.entries)
        now = self._app.clock.now()
        hold = Hold(scope=scope, since=now, by=who, reason=reason, by_admin=admin, ends_at=ends_at)
        await holds.pause(self._app, hold)
        log.info("paused", scope=scope, by=who, reason=reason, ends_at=ends_at)
        self._changed()

    async def stop(self, scope: str, *, who: str, reason: str | None, admin: bool) -> None:
        """For all replicas. Those of this one end at once; others check before each request."""
        hold = Hold(scope=scope, since=self._app.clock.now(), by=who, reason=reason, by_admin=admin)
        reached = await holds.stop(self._app, hold)
        self._scheduler.end_covered(hold)
        log.warning("stopped", scope=scope, by=who, reason=reason, runs=reached)
        self._changed()

    async def resume(self, scope: str, *, who: str, admin: bool) -> None:
        if await holds.resume(self._app, scope, by=who, admin=admin):
            log.info("resumed", scope=scope, by=who)
        self._changed()

    async def holds(self) -> list[run_document.Hold]:
        return [report.hold_document(hold) for hold in await self._app.state.holds()]

    async def ended_holds(self) -> list[run_document.Hold]:
        return [report.hold_document(hold) for hold in await self._app.state.ended_holds()]

    async def alive(self) -> Health:
        return await self._checkup.alive()

    async def ready(self) -> Health:
        return await self._checkup.ready()

    def metrics(self) -> bytes:
        return self._app.metrics.exposition()

    async def _table(self, label: str, held: HoldIndex, last: run_document.Run | None) -> documents.Table:
        known = self._scheduler.known_tables
        entry = known.entries[label]
        adaptive = entry.schedule.adaptive is not None
        status = TableStatus(
            ref=entry.work.ref,
            location=last["location"] if last else None,
            problem=known.problems.get(_dataset(label)),
            last_run=last,
            paused=held.covering(label) is not None,
            cadence=await cadence.recall(self._app.state, label) if adaptive else None,
        )
        due = self._scheduler.due_at(label) if entry.enabled else None
        return {**status.document, "next_due": report.iso_utc(due)}

    def _unseen(self) -> dict[str, documents.Table]:
        """Datasets that cannot be looked at, each as `tenant/dataset/*`."""
        found: dict[str, documents.Table] = {}
        for tenant, dataset in self._app.discovery.datasets():
            if why := self._scheduler.known_tables.problems.get(f"{tenant.id}/{dataset.id}"):
                ref = whole_dataset(tenant, dataset)
                status = TableStatus(ref=ref, location=None, problem=why, last_run=None, paused=False)
                found[ref.label] = {**status.document, "next_due": None}
        return found


@contextmanager
def _rows_may_be_gone(run_id: str) -> Iterator[None]:
    try:
        yield
    except (StorageError, Unreadable, OSError) as exc:
        log.warning("plan_rows_gone", planned_by=run_id, reason=str(exc))


def _dataset(label: str) -> str:
    return "/".join(label.split("/")[:2])
