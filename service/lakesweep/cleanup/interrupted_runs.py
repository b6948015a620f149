"""What becomes of a run whose process ended: it is closed with a reason, and its table is planned anew.

Its saved plan is not continued, on purpose. Before another file of it could go, every reference would have to be read
again and every guard asked again, which is a new plan but for the listing; and what the dead run deleted is not listed
any more, so the new plan is exactly what is left. The two things that a listing cannot tell are in the state store:
the head before an expiry that was committed (`pending_expiry`), and the ledger. So a cycle that is killed at any
point and run again ends in the same state.

Only the holder of the table's lease may call this: then nobody else works on an open run.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from lakesweep.cleanup.report import interrupted_document
from lakesweep.model import run_document
from lakesweep.model.files import DeletionReport, Tally
from lakesweep.ports.state import BatchRecord, BatchState, StateStore

log = structlog.get_logger()


async def close_interrupted(state: StateStore, table: str, now: datetime) -> int:
    """Close every open run of the table with what its journal tells. How many there were."""
    closed = 0
    for document in await state.open_runs(table):
        plan = await state.get_plan(document["run_id"])
        journal = await state.journal(document["run_id"])
        counted = interrupted_document(
            document,
            what=_what(document, journal, planned=plan is not None),
            finished_at=now,
            deletion=_deletion(journal),
            plan=Tally(files=plan.candidates, bytes=plan.bytes) if plan else Tally(),
        )
        if await state.close_run(counted):
            closed += 1
            log.warning("run_interrupted", interrupted_run=document["run_id"], reason=counted["reason"])
    return closed


def _deletion(journal: list[BatchRecord]) -> DeletionReport:
    done = [batch for batch in journal if batch.state is BatchState.DONE]
    deleted = Tally(files=sum(batch.deleted for batch in done), bytes=sum(batch.bytes for batch in done))
    return DeletionReport(deleted=deleted, already_gone=sum(batch.already_gone for batch in done))


def _what(document: run_document.Run, journal: list[BatchRecord], *, planned: bool) -> str:
    if not planned:
        what = f"its process died while {document['phase']}, before there was a plan"
    elif not journal:
        what = "its process died after the plan was made and before the first file was deleted"
    else:
        unknown = [batch for batch in journal if batch.state is BatchState.INTENT]
        what = f"its process died after {len(journal) - len(unknown)} batches"
        if unknown:
            files = sum(batch.count for batch in unknown)
            what += f"; {len(unknown)} more ({files} files) were started and may or may not be deleted"
    return f"{what}; the table is planned again"
