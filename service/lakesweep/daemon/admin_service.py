"""The service as the API sees it: questions go to the state store and the scheduler, requests to the scheduler.

Implements `admin.backend.AdminBackend`. Who may ask is the API's business; nothing here knows a token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import structlog

from lakesweep.admin import documents
from lakesweep.admin.app import make_app
from lakesweep.admin.auth import Gatekeeper, check_listen, is_loopback
from lakesweep.admin.backend import Health, PlanPage
from lakesweep.admin.limits import Limits
from lakesweep.admin.server import serving
from lakesweep.cleanup import report
from lakesweep.daemon import hold_commands
from lakesweep.daemon.app import App
from lakesweep.daemon.health import Checkup
from lakesweep.daemon.hold_index import HoldIndex
from lakesweep.daemon.scheduler import Scheduler
from lakesweep.model import run_document
from lakesweep.model.access import Trigger, TriggeredBy
from lakesweep.model.errors import Refused, StorageError, Unreadable
from lakesweep.model.run import CleanupRun
from lakesweep.ports.state import Approval, Hold

log = structlog.get_logger()


class Control:
    """Everything the API needs of one replica."""

    def __init__(self, scheduler: Scheduler, checkup: Checkup) -> None:
        self._scheduler = scheduler
        self._checkup = checkup

    @property
    def _app(self) -> App:
        return self._scheduler.app

    async def tables(self, tenants: Collection[str] | None, *, after: str | None, limit: int) -> list[documents.Table]:
        """Known tables by name, and datasets whose tables are not known because they cannot be looked at."""
        # As the state store has them: the scheduler's own may be some seconds old.
        holds = HoldIndex(await self._app.state.holds())
        unseen = self._unseen()
        known = self._scheduler.roster.entries.keys() | unseen.keys()
        labels = sorted(label for label in known if tenants is None or label.partition("/")[0] in tenants)
        first = bisect_right(labels, after) if after is not None else 0
        page = labels[first : first + limit]
        last = await self._app.state.last_runs(page)
        return [unseen.get(label) or self._table(label, holds, last.get(label)) for label in page]

    async def start_run(self, table: str, *, execute: bool, who: str) -> str:
        """Before all tables that are only due."""
        run_id = self._scheduler.request(table, execute=execute, trigger=Trigger(by=TriggeredBy.API, who=who))
        log.info("run_requested", requested_run=run_id, table=table, execute=execute, by=who)
        return run_id

    async def runs(
        self, *, tenants: Collection[str] | None, table: str | None, before: str | None, limit: int
    ) -> list[run_document.Run]:
        """Of all replicas."""
        return await self._app.state.list_runs(tenants=tenants, table=table, before=before, limit=limit)

    async def run(self, run_id: str) -> run_document.Run | None:
        """One that still waits here for its turn is in no state store yet."""
        turn = self._scheduler.waiting_or_running(run_id)
        recorded = await self._app.state.get_run(run_id)
        if recorded is not None or turn is None:
            return recorded
        return report.run_document(
            CleanupRun(id=run_id, table=turn.entry.work.ref, location=None, started_at=turn.since)
        )

    async def plan(self, run_id: str, *, offset: int, limit: int) -> PlanPage | None:
        """Rows that are no longer kept are as good as none."""
        header = await self._app.state.get_plan(run_id)
        if header is None:
            return None
        try:
            files = await self._app.artifacts.page(header.rows_path, offset, limit)
        except (StorageError, Unreadable, OSError) as exc:
            log.warning("plan_rows_gone", planned_by=run_id, reason=str(exc))
            return None
        return PlanPage(header=header, files=files)

    async def approve(self, run_id: str, *, digest: str | None, who: str) -> Approval:
        """The table's next cycle comes at once."""
        approval = await self._app.approve(run_id, by=who, digest=digest)
        log.info("plan_approved", approved_run=run_id, by=who)
        self._scheduler.invalidate()
        return approval

    async def cancel(self, run_id: str, *, who: str) -> None:
        """Only where it runs: another replica's runs end by their own hand."""
        if not self._scheduler.cancel(run_id):
            raise Refused("not_running", f"run {run_id} has ended, or another replica works on it")
        log.info("run_cancelled", cancelled_run=run_id, by=who)

    async def pause(self, scope: str, *, who: str, reason: str | None, admin: bool) -> None:
        """For all replicas."""
        hold = Hold(scope=scope, since=self._app.clock.now(), by=who, reason=reason, by_admin=admin)
        await hold_commands.pause(self._app, hold)
        log.info("paused", scope=scope, by=who, reason=reason)
        self._scheduler.invalidate()

    async def stop(self, scope: str, *, who: str, reason: str | None, admin: bool) -> None:
        """For all replicas. Those of this one end at once; others ask before each request."""
        hold = Hold(scope=scope, since=self._app.clock.now(), by=who, reason=reason, by_admin=admin)
        reached = await hold_commands.stop(self._app, hold)
        self._scheduler.end_covered(hold)
        log.warning("stopped", scope=scope, by=who, reason=reason, runs=reached)
        self._scheduler.invalidate()

    async def resume(self, scope: str, *, who: str, admin: bool) -> None:
        """For all replicas."""
        if await hold_commands.resume(self._app, scope, by=who, admin=admin):
            log.info("resumed", scope=scope, by=who)
        self._scheduler.invalidate()

    async def holds(self) -> list[Hold]:
        """As the state store has them."""
        return await self._app.state.holds()

    async def alive(self) -> Health:
        """Should this process be left running?"""
        return await self._checkup.alive()

    async def ready(self) -> Health:
        """Can it work now?"""
        return await self._checkup.ready()

    def metrics(self) -> bytes:
        """What Prometheus scrapes."""
        return self._app.metrics.exposition()

    def _table(self, label: str, holds: HoldIndex, last: run_document.Run | None) -> documents.Table:
        entry = self._scheduler.roster.entries[label]
        ref = entry.work.ref
        return {
            "table": label,
            "format": ref.format,
            "location": last["location"] if last else None,
            "problem": self._scheduler.roster.problems.get(f"{ref.tenant}/{ref.dataset}"),
            "last_run": last,
            "next_due": report.iso_utc(self._scheduler.due_at(label)) if entry.enabled else None,
            "paused": holds.covering(label) is not None,
        }

    def _unseen(self) -> dict[str, documents.Table]:
        """Datasets that cannot be looked at, each as `tenant/dataset/*`."""
        formats = {f"{tenant.id}/{dataset.id}": dataset.format for tenant, dataset in self._app.discovery.datasets()}
        return {
            f"{name}/*": {
                "table": f"{name}/*",
                "format": formats[name],
                "location": None,
                "problem": problem,
                "last_run": None,
                "next_due": None,
                "paused": False,
            }
            for name, problem in self._scheduler.roster.problems.items()
            if name in formats
        }


@asynccontextmanager
async def open_admin(scheduler: Scheduler, service: Control) -> AsyncIterator[str]:
    """Serve the API; gives its address. SettingsError if it would be open to other machines without any token."""
    app = scheduler.app
    listen = app.settings.admin.listen
    await check_listen(listen, app.state)
    gatekeeper = Gatekeeper(app.state, app.clock, loopback=is_loopback(listen))
    per_second = app.settings.admin.requests_per_second
    limits = Limits(per_second=per_second, burst=per_second * 5)
    async with serving(make_app(service, gatekeeper, limits), listen) as address:
        yield address
