"""Judge stored objects that no retained reference names. Pure: no I/O, no clock, no logging. Doubt means keep.

The questions are asked in this order, and the first answer stands:

    named by a retained reference?                              LIVE      decided by the engine's join, before this
    a name the format keeps for itself or that is hidden?       RESERVED  whoever named it
    its name live outside the roots, where we do not look?      FOREIGN   it may be that very file, moved or copied
    named by a snapshot that this plan expires?                 ORPHAN    it was committed, so no writer holds it
    a name the format does not write?                           FOREIGN
    of unknown age, from the future, or inside the grace time?  YOUNG     a writer may be about to commit it
    otherwise                                                   ORPHAN

An expired snapshot's word makes a file of any name ours: the table itself committed it (a writer may call its
data files as it likes), and only an exact address counts as its word. It does not overrule a reserved name:
locks, hints and hidden directories belong to other programs' conventions, and keeping one costs little.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup.ports import LISTING_SCHEMA, FileKind, Layout
from lakesweep.model.files import Reason, Verdict

UNREFERENCED_SCHEMA = pa.schema(
    [
        *LISTING_SCHEMA,
        pa.field("expired", pa.bool_(), nullable=False),  # an expiring snapshot names exactly this address
        pa.field("elsewhere", pa.bool_(), nullable=False),  # a retained reference outside the roots has its name
    ]
)
"""Listed objects that no retained reference names."""

JUDGED_SCHEMA = pa.schema(
    [
        *LISTING_SCHEMA,
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("reason", pa.string()),  # null unless the verdict is ORPHAN
        pa.field("stage", pa.int32(), nullable=False),
    ]
)
"""The same objects with what was decided."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def judge(kind: FileKind, *, expired: bool, elsewhere: bool, modified_at: datetime | None, cutoff: datetime) -> Verdict:
    """The verdict on one object that no retained reference names."""
    old = modified_at is not None and _milliseconds(modified_at) < _milliseconds(cutoff)
    return _decide(kind, expired=expired, elsewhere=elsewhere, old=old)


def judge_batch(rows: pa.RecordBatch, layout: Layout, cutoff: datetime) -> pa.RecordBatch:
    """The verdict on every row of UNREFERENCED_SCHEMA, as JUDGED_SCHEMA. Every engine judges through this."""
    kinds = [layout.classify(path) for path in rows.column("path").to_pylist()]
    listed = [rows.column(field.name) for field in LISTING_SCHEMA]
    expired = rows.column("expired").to_pylist()
    verdicts = [
        _decide(kind, expired=is_expired, elsewhere=is_elsewhere, old=is_old)
        for kind, is_expired, is_elsewhere, is_old in zip(
            kinds, expired, rows.column("elsewhere").to_pylist(), _old(rows, cutoff), strict=True
        )
    ]
    reasons = [_reason(verdict, is_expired) for verdict, is_expired in zip(verdicts, expired, strict=True)]
    return pa.RecordBatch.from_arrays(
        [
            *listed,
            pa.array(verdicts, pa.string()),
            pa.array([kind.kind for kind in kinds], pa.string()),
            pa.array(reasons, pa.string()),
            pa.array([kind.stage for kind in kinds], pa.int32()),
        ],
        schema=JUDGED_SCHEMA,
    )


def _decide(kind: FileKind, *, expired: bool, elsewhere: bool, old: bool) -> Verdict:
    if kind.reserved:
        return Verdict.RESERVED
    if elsewhere:
        return Verdict.FOREIGN
    if expired:
        return Verdict.ORPHAN
    if kind.foreign:
        return Verdict.FOREIGN
    return Verdict.ORPHAN if old else Verdict.YOUNG


def _reason(verdict: Verdict, expired: bool) -> Reason | None:
    if verdict is not Verdict.ORPHAN:
        return None
    return Reason.EXPIRED if expired else Reason.UNREFERENCED


def _old(rows: pa.RecordBatch, cutoff: datetime) -> list[bool]:
    """Modified before the cutoff, for certain."""
    modified = rows.column("modified_at").cast(pa.int64())
    before: list[bool] = pc.fill_null(pc.less(modified, _milliseconds(cutoff)), False).to_pylist()
    return before


def _milliseconds(moment: datetime) -> int:
    """Rounded down on both sides, so that rounding alone never makes a file look older than the cutoff."""
    return (moment - _EPOCH) // _MILLISECOND
