"""A person's approval of a plan above its ceilings. It lifts the ceilings and nothing else.

An approved plan is not executed from its saved rows: the next cycle plans the table again, so listing, references, ages
and every other guard are current. The approval covers those files of the new plan that the approved one names too (same
path, size, time and etag). All other files of the new plan count against the ceilings, as if they were the whole plan.
It is bound to the digest of the approved rows and ends at a set time, or when a run of the table is restored. A ghost
is deleted only if the new plan is exactly the approved one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow.compute as pc
import structlog

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model.errors import Refused, StorageError, UnknownRun, Unreadable
from lakesweep.model.files import OrphanPlan, Tally
from lakesweep.model.refusal import RefusalCode, consequences
from lakesweep.model.table import is_ghost
from lakesweep.ports.state import Approval, PlanHeader, StateStore

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """Gives approvals and says what they cover."""

    state: StateStore
    artifacts: Artifacts
    record: Callable[[Approval], Awaitable[None]] | None = None
    """Called before an approval takes effect; if it raises, there is no approval."""

    async def give(
        self, run_id: str, *, by: str, now: datetime, valid_for: timedelta, digest: str | None = None
    ) -> Approval:
        """Approve the plan of a run that a ceiling stopped, with this `digest` if given. Its rows must be unchanged."""
        run, header = await self.state.get_run(run_id), await self.state.get_plan(run_id)
        if run is None:
            raise UnknownRun(f"there is no run {run_id!r}: `lakesweep runs` shows them")
        refused = run["refused"]
        if header is None or refused is None or not consequences(refused["code"]).approvable:
            why = f"it was refused for another reason ({refused['code']})" if refused else "it was not refused"
            raise Refused(RefusalCode.NOT_WAITING, f"run {run_id} is not waiting for approval: {why}")
        if digest is None and is_ghost(header.table):
            raise Refused(
                RefusalCode.OTHER_PLAN, f"approving a ghost's plan needs its digest: `lakesweep show {run_id}` shows it"
            )
        if digest is not None and digest != header.digest:
            raise Refused(
                RefusalCode.OTHER_PLAN, f"the plan of run {run_id} has the digest {header.digest}, not {digest}"
            )
        problem = await self._problem(header)
        if problem:
            raise Refused(RefusalCode.PLAN_DAMAGED, f"the plan of run {run_id} cannot be approved: {problem}")
        approval = Approval(
            run_id=run_id,
            table=header.table,
            digest=header.digest,
            approved_by=by,
            approved_at=now,
            expires_at=now + valid_for,
        )
        if self.record is not None:
            await self.record(approval)
        await self.state.add_approval(approval)
        return approval

    async def covered(self, table: str, plan: OrphanPlan, now: datetime) -> Tally:
        """How much of a new plan the newest valid approval of its table covers."""
        for approval in await standing(self.state, table, now):
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

    async def is_given(self, table: str, digest: str, now: datetime) -> bool:
        """Is there a valid approval of a plan with exactly these rows?"""
        return any(one.digest == digest for one in await standing(self.state, table, now))

    async def _problem(self, header: PlanHeader) -> str | None:
        try:
            async with self.artifacts.opened(header.rows_path) as rows_path:
                found = await asyncio.to_thread(plan_file.digest, rows_path)
        except (Unreadable, StorageError, OSError) as exc:
            return str(exc)
        return None if found == header.digest else "its rows do not match the plan that was saved"


async def standing(state: StateStore, table: str, now: datetime) -> list[Approval]:
    """The approvals of a table or a ghost that are valid now, newest first. A restore ends earlier approvals: a
    restored file is there because a person wants it. So does, for a ghost, a run that began to delete since."""
    valid = [one for one in await state.approvals(table) if now < one.expires_at]
    before = None
    while valid and (runs := await state.list_runs(table=table, before=before)):
        for run in runs:
            began = datetime.fromisoformat(run["started_at"])
            over = [one for one in valid if one.approved_at - began <= timedelta(milliseconds=1)]  # as it is kept
            if not over:
                return valid
            if run["restored"] is not None or (is_ghost(table) and await state.journal(run["run_id"])):
                valid = [one for one in valid if one not in over]
        before = runs[-1]["run_id"]
    return valid


def _covered(new_rows: str, approved_rows: str, digest: str) -> Tally:
    covered = Tally()
    approved = plan_file.read_checked(approved_rows, digest)
    for rows, found in plan_file.look_up(plan_file.read_rows(new_rows), approved, "path"):
        sizes = rows.column("size_bytes").filter(pc.is_valid(found))
        covered += Tally(files=len(sizes), bytes=pc.sum(sizes).as_py() or 0)
    return covered
