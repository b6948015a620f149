"""The state store of single tables' stories, on dictionaries: a hundred times faster than a database in memory.

No method awaits anything, so each is one transaction of its own. It passes the contract suite of state stores. Stories
of services use the product's own store.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from lakesweep.cleanup import report
from lakesweep.model import run_document
from lakesweep.model.access import ApiToken
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun, Lease
from lakesweep.ports.clock import Clock
from lakesweep.ports.state import (
    Approval,
    AuditHeader,
    BatchRecord,
    BatchState,
    DueTime,
    Hold,
    LedgerHeader,
    Notice,
    PlanHeader,
    RunFigures,
)
from lakesweep.state import rules


class DictStateStore:
    """The StateStore port on dictionaries."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, CleanupRun] = {}
        self._closed: dict[str, run_document.Run] = {}
        self._plans: dict[str, PlanHeader] = {}
        self._batches: dict[tuple[str, int], BatchRecord] = {}
        self._leases: dict[str, Lease] = {}
        self._pending: dict[str, str] = {}
        self._due: dict[str, DueTime] = {}
        self._ledgers: dict[str, LedgerHeader] = {}
        self._approvals: dict[str, Approval] = {}
        self._holds: dict[str, Hold] = {}
        self._audits: dict[str, AuditHeader] = {}
        self._tokens: dict[str, ApiToken] = {}
        self._secrets: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._notices: dict[str, Notice] = {}

    async def start_run(self, run: CleanupRun) -> None:
        if run.id in self._runs:
            raise StateError(f"run {run.id} is already recorded")
        self._runs[run.id] = run

    async def update_run(self, run: CleanupRun) -> None:
        self._run(run.id)
        self._runs[run.id] = run
        self._closed.pop(run.id, None)

    async def get_run(self, run_id: str) -> run_document.Run | None:
        return self._document(self._runs[run_id]) if run_id in self._runs else None

    async def list_runs(
        self,
        *,
        table: str | None = None,
        tenants: Collection[str] | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[run_document.Run]:
        """Newest first. Nothing is older than an unknown run."""
        found = self._newest_first()
        if before is not None:
            found = found[found.index(self._runs[before]) + 1 :] if before in self._runs else []
        matching = (
            run
            for run in found
            if (table is None or run.table.label == table) and (tenants is None or run.table.tenant in tenants)
        )
        return [self._document(run) for run in itertools.islice(matching, limit)]

    async def last_runs(self, tables: Collection[str]) -> dict[str, run_document.Run]:
        wanted = set(tables)
        oldest_first = reversed(self._newest_first())
        return {run.table.label: self._document(run) for run in oldest_first if run.table.label in wanted}

    async def last_planned(self, tenants: Collection[str] | None = None) -> dict[str, run_document.Run]:
        """The newest finished run with a plan, of each table."""
        found: dict[str, run_document.Run] = {}
        for run in reversed(self._newest_first()):
            document = self._document(run)
            known = run.id in self._plans and document["outcome"] is not None and not document["interrupted"]
            if known and document["listed"] and (tenants is None or run.table.tenant in tenants):
                found[run.table.label] = document
        return found

    async def run_figures(
        self, since: datetime, tenants: Collection[str] | None = None, *, table: str | None = None
    ) -> list[RunFigures]:
        return [
            RunFigures(
                table=run.table.label,
                started_at=run.started_at,
                planned=run.id in self._plans and document["listed"],
                orphan_bytes=document["orphans"]["bytes"],
                deleted_bytes=document["deleted"]["bytes"],
                freed_bytes=document["freed_bytes"],
                restored_bytes=document["restored"]["bytes"] if document["restored"] else 0,
                restored_files=document["restored"]["count"] if document["restored"] else 0,
                deleted_files=document["deleted"]["count"],
                expired_bytes=document["orphans"]["by_reason"]["expired"]["bytes"],
            )
            for run in reversed(self._newest_first())
            if run.started_at >= since and (tenants is None or run.table.tenant in tenants)
            if table is None or run.table.label == table
            if (document := self._document(run))["outcome"] is not None
        ]

    async def runs_beginning(self, prefix: str, limit: int = 10) -> list[run_document.Run]:
        found = (run for run in self._newest_first() if run.id.startswith(prefix))
        return [self._document(run) for run in itertools.islice(found, limit)]

    async def open_runs(self, table: str) -> list[run_document.Run]:
        unfinished = [run for run in self._newest_first() if run.outcome is None and run.table.label == table]
        found = [self._document(run) for run in unfinished]
        return [document for document in found if document["outcome"] is None]

    async def close_run(self, document: run_document.Run) -> bool:
        """Finish a run whose process is gone; a finished run stays as it is."""
        found = await self.get_run(document["run_id"])
        if found is None or found["outcome"] is not None:
            return False
        self._closed[document["run_id"]] = _copy(document)
        return True

    async def forget_runs(self, before: datetime, limit: int) -> tuple[int, list[str]]:
        ended = [(when, run_id) for run_id in self._runs if (when := self._finished_at(run_id)) and when < before]
        ids = [run_id for _, run_id in sorted(ended)[:limit]]
        addresses = [self._plans.pop(run_id).rows_path for run_id in ids if run_id in self._plans]
        for run_id in ids:
            del self._runs[run_id]
            self._closed.pop(run_id, None)
            self._approvals.pop(run_id, None)
        self._batches = {key: batch for key, batch in self._batches.items() if key[0] not in ids}
        return len(ids), addresses

    async def save_plan(self, header: PlanHeader) -> None:
        """A run's plan never changes: its journal counts that plan's rows."""
        self._run(header.run_id)
        if self._plans.setdefault(header.run_id, header) != header:
            raise StateError(f"run {header.run_id} already has another plan")

    async def get_plan(self, run_id: str) -> PlanHeader | None:
        return self._plans.get(run_id)

    async def begin_batch(self, record: BatchRecord) -> None:
        table = self._run(record.run_id).table.label
        self._require_valid(table, record.fencing_token)
        if (record.run_id, record.number) in self._batches:
            raise StateError(f"batch {record.number} of run {record.run_id} is already in the journal")
        self._batches[record.run_id, record.number] = replace(record, state=BatchState.INTENT)

    async def finish_batch(self, record: BatchRecord) -> None:
        key = (record.run_id, record.number)
        self._batches[key] = rules.finished_batch(self._batches.get(key), record)

    async def journal(self, run_id: str) -> list[BatchRecord]:
        return [record for (run, _), record in sorted(self._batches.items()) if run == run_id]

    async def acquire_lease(self, table: str, owner: str, ttl: timedelta) -> Lease | None:
        granted = rules.grant(self._leases.get(table), table=table, owner=owner, ttl=ttl, now=self._clock.now())
        if granted:
            self._leases[table] = granted
        return granted

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease:
        current = self._require_valid(lease.table, lease.token)
        self._leases[lease.table] = replace(current, expires_at=self._clock.now() + ttl)
        return self._leases[lease.table]

    async def check_lease(self, lease: Lease) -> None:
        self._require_valid(lease.table, lease.token)

    async def release_lease(self, lease: Lease) -> None:
        newest = self._leases.get(lease.table)
        if newest and newest.token == lease.token:
            self._leases[lease.table] = replace(newest, expires_at=rules.RELEASED)

    async def set_pending_expiry(self, table: str, head_before: str | None, run_id: str) -> None:
        if head_before is None:
            self._pending.pop(table, None)
        else:
            self._pending[table] = head_before

    async def pending_expiry(self, table: str) -> str | None:
        return self._pending.get(table)

    async def set_due(self, due: DueTime) -> None:
        self._due[due.table] = due

    async def get_due(self, table: str) -> DueTime | None:
        return self._due.get(table)

    async def due_times(self, *, until: datetime | None = None) -> list[DueTime]:
        found = [due for due in self._due.values() if until is None or due.next_due <= until]
        return sorted(found, key=lambda due: (due.next_due, due.table))

    async def set_ledger(self, header: LedgerHeader) -> None:
        self._ledgers[header.table] = header

    async def get_ledger(self, table: str) -> LedgerHeader | None:
        return self._ledgers.get(table)

    async def add_approval(self, approval: Approval) -> None:
        self._run(approval.run_id)
        self._approvals[approval.run_id] = approval

    async def approvals(self, table: str) -> list[Approval]:
        found = [approval for approval in self._approvals.values() if approval.table == table]
        return sorted(found, key=lambda approval: (approval.approved_at, approval.run_id), reverse=True)

    async def set_hold(self, hold: Hold) -> None:
        self._holds[hold.scope] = rules.merged(self._holds.get(hold.scope), hold, self._clock.now())

    async def clear_hold(self, scope: str, *, admin: bool = True) -> bool:
        there = self._holds.get(scope)
        if there is None or (there.by_admin and not admin):
            return False
        del self._holds[scope]
        return True

    async def holds(self) -> list[Hold]:
        return [hold for hold in self._by_scope() if not rules.has_ended(hold, self._clock.now())]

    async def ended_holds(self) -> list[Hold]:
        return [hold for hold in self._by_scope() if rules.has_ended(hold, self._clock.now())]

    async def forget_ended_holds(self, before: datetime) -> int:
        gone = [hold for hold in await self.ended_holds() if hold.ends_at and hold.ends_at < before]
        for hold in gone:
            del self._holds[hold.scope]
        return len(gone)

    def _by_scope(self) -> list[Hold]:
        return [self._holds[scope] for scope in sorted(self._holds)]

    async def add_notice(self, notice: Notice) -> None:
        self._notices.setdefault(notice.id, notice)

    async def notices(self, *, dead: bool = False, limit: int = 500) -> list[Notice]:
        found = [one for one in self._notices.values() if (one.dead_at is not None) == dead]
        return sorted(found, key=lambda one: (one.created_at, one.id))[:limit]

    async def claim_notice(self, notice: Notice, next_try: datetime) -> bool:
        there = self._notices.get(notice.id)
        if there is None or there.attempts != notice.attempts or there.dead_at is not None:
            return False
        self._notices[notice.id] = replace(there, attempts=there.attempts + 1, next_try=next_try)
        return True

    async def end_notice(self, notice_id: str, dead_at: datetime | None = None) -> None:
        there = self._notices.pop(notice_id, None)
        if there is not None and dead_at is not None:
            self._notices[notice_id] = replace(there, dead_at=dead_at)

    async def set_audit(self, header: AuditHeader) -> None:
        known = self._audits.setdefault(header.run_id, header)
        if header.last > known.last:
            self._audits[header.run_id] = replace(header, first=known.first)

    async def get_audit(self, run_id: str) -> AuditHeader | None:
        return self._audits.get(run_id)

    async def audit_head(self, table: str) -> AuditHeader | None:
        mine = (header for header in self._audits.values() if header.table == table)
        return max(mine, key=lambda header: header.last, default=None)

    async def audited_tables(self) -> list[str]:
        return sorted({header.table for header in self._audits.values()})

    async def add_token(self, token: ApiToken) -> None:
        if token.id in self._tokens:
            raise StateError(f"token {token.id} already exists")
        self._tokens[token.id] = token

    async def get_token(self, token_id: str) -> ApiToken | None:
        return self._tokens.get(token_id)

    async def list_tokens(self) -> list[ApiToken]:
        return sorted(self._tokens.values(), key=lambda token: (token.created_at, token.id))

    async def revoke_token(self, token_id: str, when: datetime) -> bool:
        token = self._tokens.get(token_id)
        if token is not None:
            self._tokens[token_id] = replace(token, revoked_at=token.revoked_at or when)
        return token is not None

    async def secret(self, name: str, new: str) -> str:
        return self._secrets.setdefault(name, new)

    async def remember(self, name: str, value: str) -> None:
        self._notes[name] = value

    async def recall(self, name: str) -> str | None:
        return self._notes.get(name)

    async def server_time(self) -> datetime | None:
        return None

    async def ping(self) -> None:
        """Always available."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def _finished_at(self, run_id: str) -> datetime | None:
        finished = self._document(self._runs[run_id])["finished_at"]
        return datetime.fromisoformat(finished) if finished else None

    def _document(self, run: CleanupRun) -> run_document.Run:
        return _copy(self._closed.get(run.id) or report.run_document(run))

    def _run(self, run_id: str) -> CleanupRun:
        if run_id not in self._runs:
            raise StateError(f"run {run_id} is not recorded")
        return self._runs[run_id]

    def _newest_first(self) -> list[CleanupRun]:
        return sorted(self._runs.values(), key=lambda run: (run.started_at, run.id), reverse=True)

    def _require_valid(self, table: str, token: int) -> Lease:
        return rules.require_valid(self._leases.get(table), table=table, token=token, now=self._clock.now())


def _copy(document: run_document.Run) -> run_document.Run:
    """As a database would return it: plain JSON, and a copy that the caller may change."""
    return run_document.from_storage(json.loads(json.dumps(document)))
