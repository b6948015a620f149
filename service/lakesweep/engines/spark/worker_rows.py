"""Rows as Spark's workers hand them on: with fingerprints, and as bytes where that is cheaper.

Both sides of the big join are hashed in Python, by the function of the in-process engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from lakesweep.cleanup import addresses
from lakesweep.cleanup.addresses import PLACED_SCHEMA
from lakesweep.engines import fingerprints

SKIPPED = "skipped"
"""The role of a row that stands for a source of the expired side that could not be read."""
STAND_IN = "stand_in"
"""The role of a fingerprint without its reference; see `manifest_fingerprints`."""

OTHER_CODE = "other_code"
"""The role of a row that says: these fingerprints are not for the service's cache, other code has made them."""

_MICROSECONDS = pa.timestamp("us", tz="UTC")
_PRINT = pa.field("print", pa.int64())
READ_SCHEMA = pa.schema([*PLACED_SCHEMA, _PRINT, pa.field("source", pa.int32())])
"""References, in full or as fingerprints. A stand-in has neither address nor match key."""


def listed(inventory: pa.RecordBatch) -> pa.RecordBatch:
    """What is stored, with the fingerprints of its match keys."""
    keys, same = inventory.column("match_key"), inventory.column("path")
    whole = same if keys.null_count == len(keys) else pc.coalesce(keys, same)
    rows = for_spark(inventory)
    return pa.RecordBatch.from_arrays([*rows.columns, prints(whole)], schema=rows.schema.append(_PRINT))


def in_full(placed: pa.RecordBatch) -> pa.RecordBatch:
    """References with their addresses."""
    columns = [*placed.columns, prints(addresses.placed_keys(placed)), pa.nulls(placed.num_rows, pa.int32())]
    return pa.RecordBatch.from_arrays(columns, schema=READ_SCHEMA)


def stood_in(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Fingerprints in place of references. `first` is the number of the first source among all."""
    nothing = pa.nulls(rows.num_rows, pa.string())
    columns = {
        "role": pa.repeat(pa.scalar(STAND_IN), rows.num_rows),
        "inside": rows.column("inside"),
        "outside": pa.repeat(pa.scalar(value=False), rows.num_rows),
        "print": rows.column("print").view(pa.int64()),
        "source": pc.add(rows.column("source"), pa.scalar(first, pa.int32())),
    }
    return pa.RecordBatch.from_arrays([columns.get(name, nothing) for name in READ_SCHEMA.names], schema=READ_SCHEMA)


def remark(role: str) -> pa.RecordBatch:
    """One row that names nothing: SKIPPED or OTHER_CODE."""
    row = dict.fromkeys(READ_SCHEMA.names) | {"role": role, "inside": False, "outside": False}
    return pa.RecordBatch.from_pylist([row], schema=READ_SCHEMA)


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark knows microseconds only."""
    at = batch.schema.get_field_index("modified_at")
    return batch.set_column(at, "modified_at", batch.column(at).cast(_MICROSECONDS))


def stands_in(batch: pa.RecordBatch) -> bool:
    """Are these fingerprints without their references? No batch that a worker makes has both kinds."""
    return "role" in batch.schema.names and batch.num_rows > 0 and batch.column("role")[0].as_py() == STAND_IN


def packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches of one schema as one piece of bytes."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batches[0].schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> list[pa.RecordBatch]:
    """The same batches again."""
    with ipc.open_stream(data) as reader:
        return list(reader)


def prints(texts: pa.Array) -> pa.Array:
    """The fingerprints. Spark knows signed numbers only."""
    return fingerprints.shared().of(texts).view(pa.int64())
