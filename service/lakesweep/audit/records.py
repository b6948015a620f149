"""The records of the audit trail: what is recorded about a run that changes something. Pure.

A batch is recorded before it is deleted (`delete`, `spare`) and after it (`deleted`, `already_gone`, `failed`; `spared`
what was referenced again before its request, `not_sent` what the run ended before). `went` states of a deleted file
whose bytes stay in the trash or as a version. A file without a second record was interrupted: it may or may not be
deleted, but it was never deleted without the first record. `chain.py` chains the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.audit.chain import Record
from lakesweep.cleanup import arrow_json
from lakesweep.cleanup.report import iso_utc
from lakesweep.model.access import Trigger
from lakesweep.model.files import Went
from lakesweep.model.run import CleanupRun
from lakesweep.model.snapshot import ExpiryPlan
from lakesweep.ports.state import Approval, BatchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts that a run does not know about itself."""

    trigger: Trigger
    worker: str
    fencing_token: int
    settings_digest: str
    version: str


def begin_record(run: CleanupRun, about: Circumstances, approvals: Iterable[Approval] = ()) -> Record:
    plan = run.plan
    return {
        "record": "begin",
        "trigger": {"by": about.trigger.by.value, "who": about.trigger.who},
        "worker": about.worker,
        "fencing_token": about.fencing_token,
        "lakesweep": about.version,
        "settings": about.settings_digest,
        "format": run.table.format.value,
        "location": run.location,
        "approvals": [
            {
                "run_id": approval.run_id,
                "digest": approval.digest,
                "approved_by": approval.approved_by,
                "expires_at": iso_utc(approval.expires_at),
            }
            for approval in approvals
        ],
        "head": run.head,
        **({"restores": run.restored.of} if run.restored else {}),
        "started_at": iso_utc(run.started_at),
        "plan": plan
        and {
            "digest": plan.digest,
            "cutoff": iso_utc(plan.cutoff),
            "count": plan.candidates.files,
            "bytes": plan.candidates.bytes,
        },
    }


def expiry_record(record: str, plan: ExpiryPlan) -> Record:
    """Snapshots, refs and partitions that are about to be, or were, expired."""
    return {
        "record": record,
        "head": plan.head,
        "snapshots": [snapshot.id for snapshot in plan.expire],
        "refs": list(plan.drop_refs),
        "partitions": list(plan.partitions),
    }


def deleting_lines(batch: BatchRecord, going: pa.RecordBatch, spared: pa.RecordBatch) -> bytes:
    return _decisions("delete", batch, going) + _decisions("spare", batch, spared)


def deleted_lines(batch: BatchRecord, results: pa.RecordBatch) -> bytes:
    went, marker = results.column("went"), results.column("delete_marker")
    kept = pc.fill_null(pc.not_equal(went, Went.FREED.value), False)
    retained = _unless_empty("went", pc.if_else(kept, went, pa.scalar(None, pa.string())))
    return _results(batch, results, results.column("status"), retained, _unless_empty("delete_marker", marker))


def restoring_lines(batch: BatchRecord, rows: pa.RecordBatch) -> bytes:
    return _results(batch, rows, pa.repeat(pa.scalar("restore"), rows.num_rows))


def restored_lines(batch: BatchRecord, rows: pa.RecordBatch) -> bytes:
    return _results(batch, rows, rows.column("outcome"))


def _results(batch: BatchRecord, rows: pa.RecordBatch, record: pa.Array, *more: pa.Array) -> bytes:
    """A line for each file: the kind of record, the file, why, and `more` fields."""
    return _lines(
        _text('{"record":'),
        arrow_json.json_repeated(record),
        _text(f',"batch":{batch.number},"path":'),
        arrow_json.json_strings(rows.column("path")),
        _text(',"size_bytes":'),
        rows.column("size_bytes").cast(pa.string()),
        _unless_empty("why", rows.column("why")),
        *more,
        _text("}\n"),
    )


def end_record(run: CleanupRun) -> Record:
    return {
        "record": "end",
        "outcome": run.outcome.value if run.outcome else None,
        "reason": run.reason,
        "refused": run.refusal.code if run.refusal else None,
        "expired_snapshots": len(run.expired_snapshots),
        "deleted": {"count": run.deletion.deleted.files, "bytes": run.deletion.deleted.bytes},
        "freed_bytes": run.deletion.freed_bytes,
        "already_gone": run.deletion.already_gone,
        "failed": len(run.deletion.failed),
        "spared": run.spared,
        **({"restored": run.restored.restored.files} if run.restored else {}),
        "finished_at": iso_utc(run.finished_at),
    }


def _decisions(record: str, batch: BatchRecord, rows: pa.RecordBatch) -> bytes:
    if not rows.num_rows:
        return b""
    return _lines(
        _text(f'{{"record":"{record}","batch":{batch.number},"path":'),
        arrow_json.json_strings(rows.column("path")),
        _text(',"size_bytes":'),
        rows.column("size_bytes").cast(pa.string()),
        _text(',"modified_at":'),
        arrow_json.json_times(rows.column("modified_at")),
        _text(',"etag":'),
        arrow_json.json_strings(rows.column("etag")),
        _text(',"kind":'),
        arrow_json.json_repeated(rows.column("kind")),
        _text(',"reason":'),
        arrow_json.json_repeated(rows.column("reason")),
        _text("}\n"),
    )


def _unless_empty(name: str, values: pa.Array) -> pa.Array:
    """An additional field for each row that has a value for it."""
    field = pc.binary_join_element_wise(f',"{name}":', arrow_json.json_strings(values), "")
    return pc.if_else(pc.fill_null(pc.not_equal(values, ""), False), field, "")


def _text(same: str) -> pa.Scalar:
    return pa.scalar(same, pa.string())


def _lines(*parts: pa.Array | pa.Scalar) -> bytes:
    """One line per row. A null in any part would drop a line, so there must be none."""
    lines = pc.binary_join_element_wise(*parts, "", null_handling="emit_null")
    if lines.null_count:
        raise ValueError("a record of the audit trail is incomplete")
    written: bytes = arrow_json.joined(lines).to_pybytes()
    return written
