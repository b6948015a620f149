"""Close a run whose process ended, with a reason; its table is planned again.

Its saved plan is not continued, on purpose. Before another file could be deleted, every reference would have to be read
again and every guard checked again: that is a new plan, except for the listing. Files that the dead run deleted are not
listed any more, so the new plan is exactly what is left. The two things that a listing cannot show are in the state
store: the head before an expiry that was committed (`pending_expiry`), and the ledger. So a cycle that is killed at any
point and run again ends in the same state.

Only the holder of the table's lease may call this: then nobody else works on an open run.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from lakesweep.cleanup.report import interrupted_document
from lakesweep.model import run_document
from lakesweep.model.files import DeletionReport, Tally, Went
from lakesweep.ports.state import BatchRecord, BatchState, StateStore

log = structlog.get_logger()


async def close_interrupted(state: StateStore, table: str, now: datetime) -> int:
    """Close every open run of the table with what its journal says. Returns how many there were."""
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
    retained = {
        Went.TRASH: Tally(bytes=sum(batch.trash_bytes for batch in done)),
        Went.VERSIONS: Tally(bytes=sum(batch.versions_bytes for batch in done)),
    }
    return DeletionReport(deleted=deleted, already_gone=sum(batch.already_gone for batch in done), retained=retained)


def _what(document: run_document.Run, journal: list[BatchRecord], *, planned: bool) -> str:
    if document["restored"] is not None:
        of = document["restored"]["run_id"]
        what = f"its process died while restoring the files of run {of}: `lakesweep restore {of}` continues"
    elif not planned:
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
