"""What became of one batch of a sweep: as rows for the audit trail, and as sums for the run's report. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.model.files import DeletionReport, FailedDelete, Tally, Went
from lakesweep.ports.audit import DELETE_RESULTS_SCHEMA
from lakesweep.ports.deleter import Deleted, DeleteStatus


def audit_rows(going: pa.RecordBatch, fates: Sequence[Deleted]) -> pa.RecordBatch:
    """One row for each file, in the order of the batch."""
    columns = [
        going.column("path"),
        going.column("size_bytes"),
        pa.array([one.fate for one in fates], pa.string()),
        pa.array([one.why and _storable(one.why) for one in fates], pa.string()),
        pa.array([one.went if one.fate is DeleteStatus.DELETED else None for one in fates], pa.string()),
        pa.array([one.delete_marker for one in fates], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DELETE_RESULTS_SCHEMA)


def _storable(text: str) -> str:
    """What a store said may quote bytes that are no text; that must not keep an outcome from being written down."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def deletion_report(going: pa.RecordBatch, fates: Sequence[Deleted]) -> DeletionReport:
    """The sums of the batch."""
    fate = [one.fate for one in fates]
    gone_now = fate.count(DeleteStatus.DELETED)
    deleted = going if gone_now == len(fate) else going.filter(pa.array([one is DeleteStatus.DELETED for one in fate]))
    kinds = {kind: _tally(deleted.filter(pc.equal(deleted.column("kind"), kind))) for kind in _kinds(deleted)}
    return DeletionReport(
        deleted=_tally(deleted),
        already_gone=fate.count(DeleteStatus.ALREADY_GONE),
        failed=tuple(
            FailedDelete(path=one.path, why=one.why or "no reason given", kind=one.kind)
            for one in fates
            if one.fate is DeleteStatus.FAILED
        ),
        by_kind=kinds,
        retained=_retained(going, fates),
    )


def _retained(going: pa.RecordBatch, fates: Sequence[Deleted]) -> dict[Went, Tally]:
    went = [one.went if one.fate is DeleteStatus.DELETED else Went.FREED for one in fates]
    places = set(went) - {Went.FREED}
    return {where: _tally(going.filter(pa.array([one is where for one in went]))) for where in sorted(places)}


def _kinds(rows: pa.RecordBatch) -> list[str]:
    found: list[str] = rows.column("kind").unique().to_pylist()
    return found


def _tally(rows: pa.RecordBatch) -> Tally:
    return Tally(files=rows.num_rows, bytes=pc.sum(rows.column("size_bytes"), min_count=0).as_py())
