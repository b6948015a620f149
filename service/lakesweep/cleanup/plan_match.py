"""Which objects of one plan are in another file of the same order. Pure and in bounded memory: one batch of each.

Both sides come sorted by stage and path, as plans are. An object is the same only if its path, size, time and etag are:
one that was written anew under an old name is another object.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


def look_up(
    rows: Iterator[pa.RecordBatch], known: Iterator[pa.RecordBatch], column: str
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Each batch of rows with the value of `column` that the known side has for the same object, else null."""
    current = next(known, None)
    kind = current.schema.field(column).type if current is not None else pa.null()
    for batch in rows:
        found = pa.nulls(batch.num_rows, kind)
        while current is not None:
            found = pc.coalesce(found, _values(batch, current, column))
            if _last_key(current) > _last_key(batch):
                break
            current = next(known, None)
        yield batch, found


def _last_key(batch: pa.RecordBatch) -> tuple[int, bytes]:
    last = batch.num_rows - 1
    # Arrow orders texts by their bytes.
    return batch.column("stage")[last].as_py(), batch.column("path")[last].as_buffer().to_pybytes()


def _values(batch: pa.RecordBatch, known: pa.RecordBatch, column: str) -> pa.Array:
    index = pc.index_in(batch.column("path"), value_set=known.column("path"))
    other = known.take(index)
    same = pc.and_(
        pc.equal(batch.column("size_bytes"), other.column("size_bytes")),
        pc.and_(
            pc.equal(_moment(batch), _moment(other)),
            pc.equal(pc.coalesce(batch.column("etag"), ""), pc.coalesce(other.column("etag"), "")),
        ),
    )
    same = pc.and_(pc.is_valid(index), pc.fill_null(same, False))
    return pc.if_else(same, other.column(column), pa.scalar(None, other.column(column).type))


def _moment(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(batch.column("modified_at").cast(pa.int64()), -1)
