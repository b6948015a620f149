"""The state store of demos and tests: forgets everything at the end of the process.

No method awaits anything, so each is one transaction of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from lakesweep.cleanup.ports import BatchRecord, BatchState, Clock, DueTime, LedgerHeader, PlanHeader
from lakesweep.cleanup.report import run_document
from lakesweep.model.errors import StateError
from lakesweep.model.run import CleanupRun, Lease
from lakesweep.state import laws


class MemoryStateStore:
    """The StateStore port on dictionaries."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, CleanupRun] = {}
        self._plans: dict[str, PlanHeader] = {}
        self._batches: dict[tuple[str, int], BatchRecord] = {}
        self._leases: dict[str, Lease] = {}
        self._pending: dict[str, str] = {}
        self._due: dict[str, DueTime] = {}
        self._ledgers: dict[str, LedgerHeader] = {}

    async def start_run(self, run: CleanupRun) -> None:
        """Record a new run."""
        if run.id in self._runs:
            raise StateError(f"run {run.id} is already recorded")
        self._runs[run.id] = run

    async def update_run(self, run: CleanupRun) -> None:
        """Replace what is known of a run."""
        self._run(run.id)
        self._runs[run.id] = run

    async def get_run(self, run_id: str) -> dict[str, Any] | None:
        """A run as its JSON document."""
        return _document(self._runs[run_id]) if run_id in self._runs else None

    async def list_runs(self, *, table: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Newest first."""
        found = [run for run in self._newest_first() if table is None or run.table.label == table]
        return [_document(run) for run in found[:limit]]

    async def open_runs(self, table: str) -> list[dict[str, Any]]:
        """Runs of a table that never finished, newest first."""
        return [_document(run) for run in self._newest_first() if run.table.label == table and run.outcome is None]

    async def save_plan(self, header: PlanHeader) -> None:
        """A run has one plan for ever: its journal counts that plan's rows."""
        self._run(header.run_id)
        if self._plans.setdefault(header.run_id, header) != header:
            raise StateError(f"run {header.run_id} already has another plan")

    async def get_plan(self, run_id: str) -> PlanHeader | None:
        """The plan of a run, without its rows."""
        return self._plans.get(run_id)

    async def begin_batch(self, record: BatchRecord) -> None:
        """Journal the intent, if the lease is valid at this very moment."""
        table = self._run(record.run_id).table.label
        self._require_valid(table, record.fencing_token)
        if (record.run_id, record.number) in self._batches:
            raise StateError(f"batch {record.number} of run {record.run_id} is already in the journal")
        self._batches[record.run_id, record.number] = replace(record, state=BatchState.INTENT)

    async def finish_batch(self, record: BatchRecord) -> None:
        """Journal the outcome. No lease is asked for: what happened is a fact."""
        key = (record.run_id, record.number)
        self._batches[key] = laws.closing(self._batches.get(key), record)

    async def journal(self, run_id: str) -> list[BatchRecord]:
        """All batches of a run by number."""
        return [record for (run, _), record in sorted(self._batches.items()) if run == run_id]

    async def acquire_lease(self, table: str, owner: str, ttl: timedelta) -> Lease | None:
        """A lease with a token greater than any before, or None while another owner holds it."""
        granted = laws.grant(self._leases.get(table), table=table, owner=owner, ttl=ttl, now=self._clock.now())
        if granted:
            self._leases[table] = granted
        return granted

    async def renew_lease(self, lease: Lease, ttl: timedelta) -> Lease:
        """Extend, or raise LeaseLost."""
        current = self._require_valid(lease.table, lease.token)
        self._leases[lease.table] = replace(current, expires_at=self._clock.now() + ttl)
        return self._leases[lease.table]

    async def check_lease(self, lease: Lease) -> None:
        """Raise LeaseLost unless the lease is valid by the store's clock."""
        self._require_valid(lease.table, lease.token)

    async def release_lease(self, lease: Lease) -> None:
        """End the lease now; nothing happens if it is not the newest any more."""
        newest = self._leases.get(lease.table)
        if newest and newest.token == lease.token:
            self._leases[lease.table] = replace(newest, expires_at=min(newest.expires_at, self._clock.now()))

    async def set_pending_expiry(self, table: str, head_before: str | None, run_id: str) -> None:  # noqa: ARG002  # the port's
        """Remember the head an expiry commit starts from; None forgets it."""
        if head_before is None:
            self._pending.pop(table, None)
        else:
            self._pending[table] = head_before

    async def pending_expiry(self, table: str) -> str | None:
        """The head before an expiry commit whose files are not swept yet."""
        return self._pending.get(table)

    async def set_due(self, due: DueTime) -> None:
        """When a table is next looked at."""
        self._due[due.table] = due

    async def due_times(self) -> list[DueTime]:
        """All of them, the soonest first."""
        return sorted(self._due.values(), key=lambda due: (due.next_due, due.table))

    async def set_ledger(self, header: LedgerHeader) -> None:
        """Where a table's ledger is from now on."""
        self._ledgers[header.table] = header

    async def get_ledger(self, table: str) -> LedgerHeader | None:
        """Where a table's ledger is, if it has one."""
        return self._ledgers.get(table)

    async def ping(self) -> None:
        """Always in reach."""

    async def aclose(self) -> None:
        """Nothing to give back."""

    def _run(self, run_id: str) -> CleanupRun:
        if run_id not in self._runs:
            raise StateError(f"run {run_id} is not recorded")
        return self._runs[run_id]

    def _newest_first(self) -> list[CleanupRun]:
        return sorted(self._runs.values(), key=lambda run: (run.started_at, run.id), reverse=True)

    def _require_valid(self, table: str, token: int) -> Lease:
        return laws.require_valid(self._leases.get(table), table=table, token=token, now=self._clock.now())


def _document(run: CleanupRun) -> dict[str, Any]:
    """As a database would give it back: plain JSON, and the caller's own to change."""
    document: dict[str, Any] = json.loads(json.dumps(run_document(run)))
    return document
