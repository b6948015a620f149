"""Judge stored objects that no retained reference names. Pure: no I/O, no clock, no logging. Doubt means keep.

The questions are asked in this order, and the first answer stands:

    named by a retained reference?                              LIVE      decided by the engine's join, before this
    a name the format keeps for itself or that is hidden?       RESERVED  no matter who named it
    its name live outside the roots, where we do not look?      FOREIGN   it may be that very file, moved or copied
    named by a snapshot that this plan expires?                 ORPHAN    it was committed, so no writer holds it
    a name the format does not write?                           FOREIGN
    of unknown age, from the future, or inside the grace time?  YOUNG     a writer may be about to commit it
    otherwise                                                   ORPHAN

An expired snapshot's reference makes a file of any name ours: the table itself committed it (a writer may call its
data files as it likes), and only an exact address counts as its reference. It does not overrule a reserved name:
locks, hints and hidden directories belong to other programs' conventions, and keeping one costs little.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.model.files import Reason, Verdict
from lakesweep.ports.storage import LISTING_SCHEMA
from lakesweep.ports.table import FileKind, Layout

UNREFERENCED_SCHEMA = pa.schema(
    [
        *LISTING_SCHEMA,
        pa.field("expired", pa.bool_(), nullable=False),  # an expiring snapshot names exactly this address
        pa.field("elsewhere", pa.bool_(), nullable=False),  # a retained reference outside the roots has its name
    ]
)
"""Listed objects that no retained reference names."""

_DECIDED = pa.schema(
    [
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("reason", pa.string()),  # null unless the verdict is ORPHAN
        pa.field("stage", pa.int32(), nullable=False),
    ]
)
JUDGED_SCHEMA = pa.schema([*LISTING_SCHEMA, *_DECIDED])
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
    # A few kinds and three answers make few cases: each is decided once. Kinds live as long as `kinds` does.
    distinct = list({id(kind): kind for kind in kinds}.values())
    numbers = {id(kind): number << 3 for number, kind in enumerate(distinct)}
    cases = pa.array([numbers[id(kind)] for kind in kinds], pa.int64())
    for bit, flags in enumerate((rows.column("expired"), rows.column("elsewhere"), _old(rows, cutoff))):
        cases = pc.bit_wise_or(cases, pc.shift_left(flags.cast(pa.int64()), bit))
    encoded = cases.dictionary_encode()
    decided = [_decided(distinct[case >> 3], case) for case in encoded.dictionary.to_pylist()]
    outcomes = pa.RecordBatch.from_pylist(decided, schema=_DECIDED).take(encoded.indices)
    listed = [rows.column(field.name) for field in LISTING_SCHEMA]
    return pa.RecordBatch.from_arrays([*listed, *outcomes.columns], schema=JUDGED_SCHEMA)


def _decided(kind: FileKind, answers: int) -> dict[str, object]:
    """A row of _DECIDED. The lowest three bits are the answers."""
    expired, elsewhere, old = (bool(answers >> bit & 1) for bit in range(3))
    verdict = _decide(kind, expired=expired, elsewhere=elsewhere, old=old)
    return {"verdict": verdict, "kind": kind.kind, "reason": _reason(verdict, expired), "stage": kind.stage}


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


def _old(rows: pa.RecordBatch, cutoff: datetime) -> pa.Array:
    """Modified before the cutoff, for certain."""
    modified = rows.column("modified_at").cast(pa.int64())
    return pc.fill_null(pc.less(modified, _milliseconds(cutoff)), False)


def _milliseconds(moment: datetime) -> int:
    """Rounded down on both sides, so that rounding alone never makes a file look older than the cutoff."""
    return (moment - _EPOCH) // _MILLISECOND
