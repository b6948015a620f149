"""Reference sources to references: bytes in, Arrow out. Pure, and run in threads, processes and Spark workers.

A source is one file of the newest checkpoint. Adds must be in storage; removes that have not expired keep their
files, which may be gone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.delta import actions, checkpoint, files, log_replay
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.references import ELSEWHERE, REFERENCE_SCHEMA, TOLERATED, ReferenceSource

SCHEMA = REFERENCE_SCHEMA.append(TOLERATED)
_WITH_ELSEWHERE = SCHEMA.append(ELSEWHERE)
KIND = "checkpoint"
_ROOT = "root"
_DELETE_BEFORE = "delete_before_ms"
_UNLISTED = "unlisted"
_Named = tuple[list[pa.Array], list[pa.Array], list[pa.Array]]
"""Addresses that must be there, addresses that may be gone, and those of live files outside the root."""


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
    live, tolerated, elsewhere = _references_in(data, address, root, delete_before_ms)
    return _batch([], [*live, *tolerated], []) if _UNLISTED in known else _batch(live, tolerated, elsewhere)


def _references_in(data: bytes, address: str, root: Location, delete_before_ms: int) -> _Named:
    if checkpoint.is_json(address):
        return _from_actions(actions.parse(data, root, address).files, delete_before_ms)
    found: _Named = ([], [], [])
    with checkpoint.reading(address):
        for table in checkpoint.read_in_turns(data, checkpoint.FILE_COLUMNS):
            removes = checkpoint.structs(table, "remove")
            kept = removes.filter(pc.greater_equal(files.removal_times(removes), delete_before_ms))
            for named in (files.adds(checkpoint.structs(table, "add"), root), files.removes(kept, root)):
                for whole, more in zip(found, _from_actions(named, delete_before_ms), strict=True):
                    whole.extend(more)
    return found


def _from_actions(named: pa.Table, delete_before_ms: int) -> _Named:
    kept = named.filter(log_replay.protects(named, delete_before_ms))
    removed = kept.column("removed_ms").is_valid()
    live, gone = kept.filter(pc.invert(removed)), kept.filter(removed)
    return [files.addresses(live)], [files.addresses(gone), files.aliases(kept)], [files.elsewhere(live)]


def _batch(live: list[pa.Array], tolerated: list[pa.Array], elsewhere: list[pa.Array]) -> pa.RecordBatch:
    path = pa.concat_arrays([pa.array([], pa.string()), *live, *tolerated, *elsewhere])
    first, last = (sum(map(len, arrays)) for arrays in (live, elsewhere))
    middle = len(path) - first - last
    columns = [path, _flags((False, first), (True, middle), (False, last))]
    if not last:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, _flags((False, first + middle), (True, last))], schema=_WITH_ELSEWHERE)


def _flags(*runs: tuple[bool, int]) -> pa.Array:
    return pa.concat_arrays([pa.repeat(pa.scalar(value), count) for value, count in runs])
