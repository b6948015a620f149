"""A small service behind the API: two tenants, a few runs and one plan in a real state store, and no scheduler."""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pyarrow as pa
from tests.builders.audits import a_run

from lakesweep.admin.app import make_app
from lakesweep.admin.auth import Gatekeeper, mint
from lakesweep.admin.backend import Health, PlanPage
from lakesweep.admin.limits import Limits
from lakesweep.admin.server import serving
from lakesweep.cleanup import plan_file, plan_groups, report
from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.explain import Explanation
from lakesweep.cleanup.lake_report import trend
from lakesweep.cleanup.trash_report import restore_document
from lakesweep.daemon import lake_report, targets
from lakesweep.daemon.due_times import Schedule
from lakesweep.daemon.lake_report import Named
from lakesweep.daemon.table_status import why_then
from lakesweep.model.access import EVERY_TENANT, Role
from lakesweep.model.errors import Refused, UnknownTable
from lakesweep.model.files import Tally
from lakesweep.model.run import CleanupRun, Outcome, Phase, Refusal, Restored
from lakesweep.model.table import FormatName, TableRef, TenantId
from lakesweep.ports.state import Hold, PlanHeader
from lakesweep.settings import effective
from lakesweep.settings.schema import Settings
from lakesweep.state.memory import MemoryStateStore
from lakesweep.telemetry.metrics import Metrics

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDERS = TableRef(tenant=TenantId("acme"), dataset="prod", name="orders", format=FormatName.ICEBERG)
SECRET = TableRef(tenant=TenantId("umbrella"), dataset="lab", name="virus", format=FormatName.DELTA)
RUN_ID = "0123456789abcdef" * 2
SECRET_RUN_ID = "fedcba9876543210" * 2
FILES = 25


class SetClock:
    """Time stands still unless a test moves it."""

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment


class SmallService:
    """The AdminBackend port over a state store. Runs are recorded and never worked on."""

    def __init__(self, directory: Path) -> None:
        self.clock = SetClock()
        self.state = MemoryStateStore(self.clock)
        self.tables_known = {ref.label: ref for ref in (ORDERS, SECRET)}
        self.counted = Metrics()
        self.well = True
        self.directory = directory
        self.asked: list[tuple[str, ...]] = []

    async def seed(self) -> None:
        """One refused run with a plan for each tenant."""
        for run_id, ref in ((RUN_ID, ORDERS), (SECRET_RUN_ID, SECRET)):
            refusal = Refusal(code="ceiling_files", reason="too many")
            run = a_run(
                run_id, ref, outcome=Outcome.REFUSED, reason="too many", refusal=refusal, finished_at=NOON,
                phase=Phase.FINISHED,
            )  # fmt: skip
            run = replace(run, plan=replace(run.plan, candidates=Tally(files=FILES, bytes=FILES * 7)))
            await self.state.start_run(run)
            await self.state.save_plan(self._plan(run_id, ref))
            self.counted.count_run(run)

    def _plan(self, run_id: str, ref: TableRef) -> PlanHeader:
        rows = [
            {
                "path": f"s3://lake/{ref.label}/{number:05}.parquet",
                "size_bytes": 7,
                "modified_at": NOON if number else None,
                "etag": None,
                "kind": "data",
                "reason": "unreferenced",
                "stage": 0,
            }
            for number in range(FILES)
        ]
        rows_path = str(self.directory / "plans" / f"{run_id}.parquet")
        with plan_file.PlanWriter(rows_path) as writer:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=plan_file.PLAN_SCHEMA))
        return PlanHeader(
            run_id=run_id,
            table=ref.label,
            head="h1",
            digest=writer.digest,
            rows_path=rows_path,
            candidates=FILES,
            bytes=FILES * 7,
            created_at=NOON,
        )

    async def tables(self, tenants, *, after, limit):
        found = []
        for label, ref in sorted(self.tables_known.items()):
            if (tenants is None or ref.tenant in tenants) and label > (after or ""):
                last = await self.state.list_runs(table=label, limit=1)
                found.append(
                    {
                        "table": label,
                        "format": ref.format.value,
                        "location": None,
                        "problem": None,
                        "last_run": last[0] if last else None,
                        "estimate": None,
                        "next_due": None,
                        "paused": False,
                        "next_expiry": None,
                        "next_listing": None,
                        "cadence": None,
                    }
                )
        return found[:limit]

    async def report(self, tenants):
        known = [
            Named(label=label, format=ref.format)
            for label, ref in self.tables_known.items()
            if tenants is None or ref.tenant in tenants
        ]
        return await lake_report.make(Settings(), self.state, self.clock, known, tenants)

    async def start_run(self, table, *, execute, who):
        if table not in self.tables_known:
            raise UnknownTable(table)
        run = CleanupRun(
            id=uuid.uuid4().hex, table=self.tables_known[table], location=None, started_at=self.clock.now()
        )
        await self.state.start_run(run)
        self.asked.append(("run", table, str(execute), who))
        return run.id

    async def hint(self, table, *, event, who):
        if table not in self.tables_known:
            raise UnknownTable(table)
        self.asked.append(("hint", table, str(event), who))
        return self.clock.now()

    async def runs(self, *, tenants, table, before, limit):
        return await self.state.list_runs(tenants=tenants, table=table, before=before, limit=limit)

    async def run(self, run_id):
        return await self.state.get_run(run_id)

    async def plan(self, run_id, *, offset, limit, text=""):
        header = await self.state.get_plan(run_id)
        if header is None:
            return None
        files, matching = plan_groups.search(header.rows_path, text, offset, limit)
        return PlanPage(header=header, files=files, matching=matching)

    async def plan_groups(self, run_id):
        header = await self.state.get_plan(run_id)
        return plan_groups.groups(header.rows_path) if header else None

    async def batches(self, run_id):
        return await self.state.journal(run_id)

    async def explain(self, table, path):
        if table not in self.tables_known:
            raise UnknownTable(table)
        return Explanation(path=path, table=self.tables_known[table], verdict=None, sentences=("not stored",))

    async def table_detail(self, table):
        if table not in self.tables_known:
            raise UnknownTable(table)
        held = [hold for hold in await self.state.holds() if targets.covers(hold.scope, table)]
        figures = await self.state.run_figures(NOON - timedelta(days=90), table=table)
        return {
            "table": table,
            "next_due": report.iso_utc(NOON),
            "next_expiry": None,
            "next_listing": None,
            "next_because": why_then(Schedule(interval=timedelta(hours=24)), None, held, enabled=True),
            "holds": [report.hold_document(hold) for hold in held],
            "trend": trend(figures, NOON.date()),
        }

    async def snapshots(self, table):
        if table not in self.tables_known:
            raise UnknownTable(table)
        at = {"committed_at": report.iso_utc(NOON)}
        newest = {"id": "7", **at, "expires": False, "why": "<b>head</b>", "pins": ["branch main"]}
        oldest = {"id": "1", **at, "expires": True, "why": "no rule keeps it any longer", "pins": []}
        some = {"table": table, "head": "h1", "total": 2, "expiring": 1, "skipped": None}
        return {**some, "snapshots": [newest, oldest]}

    async def settings_of(self, table):
        if table not in self.tables_known:
            raise UnknownTable(table)
        found = effective.for_table(Settings(), lambda _: None, *table.split("/"))[:3]
        return [{"name": one.name, "value": one.value, "level": one.level.value} for one in found]

    async def approve(self, run_id, *, digest, who):
        header = await self.state.get_plan(run_id)
        if header and digest is not None and digest != header.digest:
            raise Refused("other_plan", "the run's plan has another digest")
        approvals = Approvals(state=self.state, artifacts=Artifacts(self.directory))
        return await approvals.give(run_id, by=who, now=self.clock.now(), valid_for=timedelta(hours=1))

    async def restore(self, run_id, *, paths, dry_run, who, admin):
        document = await self.state.get_run(run_id)
        if document["outcome"] is None:
            raise Refused("nothing_to_restore", "it deleted no file")
        self.asked.append(("restore", run_id, tuple(paths), dry_run, who, admin))
        return restore_document(Restored(of=run_id, restored=Tally(files=1, bytes=7)), paused=not dry_run)

    async def cancel(self, run_id, *, who):
        document = await self.state.get_run(run_id)
        if document["outcome"] is not None:
            raise Refused("not_running", "the run has ended")
        self.asked.append(("cancel", run_id, who))

    def approval_remark(self, table):
        return None

    async def pause(self, scope, *, who, reason, admin, force=False, ends_at=None):
        tenant = scope.partition("/")[0]
        if not force and scope.count("/") > 1 and scope not in self.tables_known and tenant != "location":
            raise UnknownTable(f"no table matches {scope!r}")
        now = self.clock.now()
        hold = Hold(scope=scope, since=now, by=who, reason=reason, by_admin=admin, ends_at=ends_at)
        await self.state.set_hold(hold)

    async def stop(self, scope, *, who, reason, admin):
        self.asked.append(("stop", scope, who))
        await self.pause(scope, who=who, reason=reason, admin=admin)

    async def resume(self, scope, *, who, admin):
        await self.state.clear_hold(scope)

    async def holds(self):
        return [report.hold_document(hold) for hold in await self.state.holds()]

    async def ended_holds(self):
        return [report.hold_document(hold) for hold in await self.state.ended_holds()]

    async def alive(self):
        return Health(well=self.well, checks={"scheduler": "ok"})

    async def ready(self):
        return Health(well=self.well, checks={"state": "ok" if self.well else "does not answer"})

    def metrics(self):
        return self.counted.exposition()

    async def token(self, *tenants: str, role: Role = Role.OPERATE, days: float | None = None) -> str:
        """The text of a new token."""
        lasts = timedelta(days=days) if days else None
        token, text = mint(role=role, tenants=tenants or (EVERY_TENANT,), now=self.clock.now(), lasts=lasts)
        await self.state.add_token(token)
        return text

    def app(self, *, loopback: bool = True, limits: Limits | None = None):
        return make_app(self, Gatekeeper(self.state, self.clock, loopback=loopback), limits)

    @asynccontextmanager
    async def client(self, token: str | None = None, *, loopback: bool = True, limits: Limits | None = None, **headers):
        """A client of the app, inside this process."""
        transport = httpx.ASGITransport(self.app(loopback=loopback, limits=limits), raise_app_exceptions=False)
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8484", headers={**bearer, **headers}
        ) as client:
            yield client


def tenants_named(text: str) -> set[str]:
    """Names of tenants, datasets and tables that a text gives away."""
    return {name for name in ("acme", "orders", "umbrella", "virus", "lab") if name in text}


@contextmanager
def served(service):
    """The API of a small service on a free port, in a thread of its own."""
    started, ended, box = threading.Event(), threading.Event(), []

    async def serve():
        async with serving(service.app(), "127.0.0.1:0") as address:
            box.append(address if "://" in address else f"http://{address}")
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait(30)
    try:
        yield box[0]
    finally:
        ended.set()
        thread.join()
