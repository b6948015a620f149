"""Reference sources to references: bytes in, Arrow out. Pure, and run in threads, processes and Spark workers.

A source is one file of the newest checkpoint. Adds must be in storage; removes that have not expired keep their
files, which may be gone. Plain paths, nearly all there are, never become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup.ports import REFERENCE_SCHEMA, TOLERATED, ReferenceSource
from lakesweep.formats.delta import actions, checkpoint, paths, tail
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location

SCHEMA = REFERENCE_SCHEMA.append(TOLERATED)
KIND = "checkpoint"
_ROOT = "root"
_DELETE_BEFORE = "delete_before_ms"
_UNLISTED = "unlisted"


def context(root: Location, delete_before_ms: int, *, listed: bool = True) -> tuple[tuple[str, str], ...]:
    """What `decode` must know besides the bytes. Of a table that is not listed, no file can be missing."""
    unlisted = () if listed else ((_UNLISTED, "yes"),)
    return ((_ROOT, root.raw), (_DELETE_BEFORE, str(delete_before_ms)), *unlisted)


def decode(source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    """All references of one checkpoint file. Raises Unreadable."""
    address = source.location.raw
    if source.size_bytes is not None and len(data) != source.size_bytes:
        raise Unreadable(address, f"{len(data)} bytes instead of {source.size_bytes}")
    known = dict(source.context)
    root, delete_before_ms = Location.parse(known[_ROOT]), int(known[_DELETE_BEFORE])
    found = _references_in(data, address, root, delete_before_ms)
    return _batch(found.column("path"), tolerated=True) if _UNLISTED in known else found


def _references_in(data: bytes, address: str, root: Location, delete_before_ms: int) -> pa.RecordBatch:
    if checkpoint.is_json(address):
        return _from_actions(actions.parse(data, root, address).files, delete_before_ms)
    try:
        batches = [_batch([], tolerated=True)]
        for table in checkpoint.read_in_turns(data, checkpoint.FILE_COLUMNS):
            batches += [_adds(table, root), _removes(table, root, delete_before_ms)]
    except (pa.ArrowException, OSError, ValueError, TypeError) as exc:
        raise Unreadable(address, f"not a Delta checkpoint: {exc}") from exc
    return _one_batch(batches)


def _from_actions(files: Iterable[actions.FileAction], delete_before_ms: int) -> pa.RecordBatch:
    kept = [action for action in files if tail.protects(action, delete_before_ms)]
    live = [a for action in kept if action.removed_ms is None for a in action.addresses]
    removed = [a for action in kept if action.removed_ms is not None for a in action.addresses]
    aliases = [alias for action in kept for alias in action.aliases]
    return _one_batch([_batch(live, tolerated=False), _batch([*removed, *aliases], tolerated=True)])


def _adds(table: pa.Table, root: Location) -> pa.RecordBatch:
    return _references(checkpoint.structs(table, "add"), root, tolerated=False)


def _removes(table: pa.Table, root: Location, delete_before_ms: int) -> pa.RecordBatch:
    removes = checkpoint.structs(table, "remove")
    if removes.type.get_field_index("deletionTimestamp") < 0:
        return _batch([], tolerated=True)
    removed_ms = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
    kept = removes.filter(pc.greater_equal(removed_ms, delete_before_ms))
    return _references(kept, root, tolerated=True)


def _references(rows: pa.StructArray, root: Location, *, tolerated: bool) -> pa.RecordBatch:
    spelled = pc.struct_field(rows, "path")
    odd = checkpoint.odd(spelled)
    plain = checkpoint.below(root, spelled.filter(pc.invert(odd)))
    places = [paths.resolve(text, root) for text in spelled.filter(odd).to_pylist()]
    places += _vectors(rows, root)
    addresses = [place.address for place in places if place.address is not None]
    aliases = [alias for place in places for alias in place.aliases]
    return _one_batch(
        [_batch(plain, tolerated=tolerated), _batch(addresses, tolerated=tolerated), _batch(aliases, tolerated=True)]
    )


def _vectors(rows: pa.StructArray, root: Location) -> list[paths.Place]:
    """Many data files share one file of deletion vectors: each distinct place is looked at once."""
    if rows.type.get_field_index("deletionVector") < 0:
        return []
    column = pc.struct_field(rows, "deletionVector")
    column = column.filter(column.is_valid())
    distinct = {(row["storageType"], row["pathOrInlineDv"]) for row in column.to_pylist() if row["storageType"] != "i"}
    found = [paths.deletion_vector({"storageType": kind, "pathOrInlineDv": text}, root) for kind, text in distinct]
    return [place for place in found if place is not None]


def _batch(values: Any, *, tolerated: bool) -> pa.RecordBatch:
    array = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
    array = array.cast(pa.string())
    return pa.RecordBatch.from_arrays([array, pa.repeat(pa.scalar(tolerated), len(array))], schema=SCHEMA)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    arrays = [pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(len(SCHEMA))]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
