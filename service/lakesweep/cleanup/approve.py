"""A person's word that a plan above its ceilings may go. It lifts the ceilings and nothing else.

An approved plan is not executed from its saved rows: the next cycle plans the table anew, so listing, references,
ages and every other guard are of that moment. The approval covers those files of the new plan that the approved one
names too (same path, size, time and etag); whatever else the new plan holds is held against the ceilings as if it
stood alone. It is bound to the digest of the approved rows and ends at a set time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow.compute as pc
import structlog

from lakesweep.cleanup import plan_file, plan_match
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model.errors import Refused, StorageError, UnknownRun, Unreadable
from lakesweep.model.files import OrphanPlan, Tally
from lakesweep.model.refusal import consequences
from lakesweep.ports.state import Approval, PlanHeader, StateStore

log = structlog.get_logger()


async def _unrecorded(_: Approval) -> None:
    """Nobody keeps a record of it."""


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Gives approvals and says what they cover."""

    state: StateStore
    artifacts: Artifacts
    record: Callable[[Approval], Awaitable[None]] = _unrecorded
    """Called before an approval takes effect; what it raises keeps it from that."""

    async def give(
        self, run_id: str, *, by: str, now: datetime, valid_for: timedelta, digest: str | None = None
    ) -> Approval:
        """Approve the plan of a run that a ceiling stopped: the one with `digest`, if that is given. Its rows must
        still be what they were."""
        run, header = await self.state.get_run(run_id), await self.state.get_plan(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}: `lakesweep runs` shows them")
        refused = run["refused"]
        if header is None or refused is None or not consequences(refused["code"]).approvable:
            why = f"it was refused for another reason ({refused['code']})" if refused else "it was not refused"
            raise Refused("not_waiting", f"run {run_id} is not waiting for approval: {why}")
        if digest is not None and digest != header.digest:
            raise Refused("other_plan", f"the plan of run {run_id} has the digest {header.digest}, not {digest}")
        problem = await self._problem(header)
        if problem:
            raise Refused("plan_damaged", f"the plan of run {run_id} cannot be approved: {problem}")
        approval = Approval(
            run_id=run_id,
            table=header.table,
            digest=header.digest,
            approved_by=by,
            approved_at=now,
            expires_at=now + valid_for,
        )
        await self.record(approval)
        await self.state.add_approval(approval)
        return approval

    async def covered(self, table: str, plan: OrphanPlan, now: datetime) -> Tally:
        """How much of a new plan the newest valid approval of its table covers."""
        for approval in await self.state.approvals(table):
            if approval.expires_at <= now:
                continue
            header = await self.state.get_plan(approval.run_id)
            if header is None or header.digest != approval.digest:
                continue
            try:
                async with self.artifacts.opened(header.rows_path) as rows_path:
                    found = await asyncio.to_thread(_covered, plan.rows_path, rows_path, approval.digest)
            except (Unreadable, StorageError, OSError) as exc:
                log.warning("approval_void", approved_run=approval.run_id, reason=str(exc))
                continue
            log.info("approval_used", approved_run=approval.run_id, by=approval.approved_by, files=found.files)
            return found
        return Tally()

    async def _problem(self, header: PlanHeader) -> str | None:
        try:
            async with self.artifacts.opened(header.rows_path) as rows_path:
                found = await asyncio.to_thread(plan_file.digest, rows_path)
        except (Unreadable, StorageError, OSError) as exc:
            return str(exc)
        return None if found == header.digest else "its rows do not match the plan that was saved"


def _covered(new_rows: str, approved_rows: str, digest: str) -> Tally:
    covered = Tally()
    approved = plan_file.read_checked(approved_rows, digest)
    for rows, found in plan_match.look_up(plan_file.read_rows(new_rows), approved, "path"):
        sizes = rows.column("size_bytes").filter(pc.is_valid(found))
        covered += Tally(files=len(sizes), bytes=pc.sum(sizes).as_py() or 0)
    return covered
