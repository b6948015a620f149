"""Checkpoint files: bytes to values and to references. Pure; runs in threads, processes and Spark workers. A Parquet
file carries its own row counts and ends with its footer, so a truncated file does not open. A JSON checkpoint has one
action per line, like a commit. Adds must be in storage; removes that have not expired keep their files, which may be
gone. Only the columns that cleanup needs are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats import columnar, streams
from lakesweep.formats.delta import actions, files
from lakesweep.formats.delta.paths import Malformed
from lakesweep.formats.delta.protocol import Metadata, Protocol
from lakesweep.formats.delta.state import protects
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location
from lakesweep.ports.references import ELSEWHERE, REFERENCE_SCHEMA, TOLERATED, ReferenceSource

_VECTOR = ("storageType", "pathOrInlineDv", "offset")
FILE_COLUMNS = (
    "add.path",
    *(f"add.deletionVector.{name}" for name in _VECTOR),
    "remove.path",
    "remove.deletionTimestamp",
    *(f"remove.deletionVector.{name}" for name in _VECTOR),
)
_HEAD_COLUMNS = (
    "protocol",
    "metaData.id",
    "metaData.partitionColumns",
    "metaData.configuration",
    "sidecar.path",
    "sidecar.sizeInBytes",
    "txn.appId",
)


def is_json(path: str) -> bool:
    return path.endswith(".json")


def read_head(data: bytes, root: Location, address: str) -> actions.Actions:
    """Protocol, metadata and sidecars, as far as this file has them. Raises Unreadable."""
    if is_json(address):
        return replace(actions.parse(data, root, address), files=files.none())
    protocol: list[Protocol] = []
    metadata: list[Metadata] = []
    sidecars: list[tuple[str, int | None]] = []
    stream: str | None = None
    with reading(address):
        for table in read_in_turns(data, _HEAD_COLUMNS):
            protocol += [Protocol.from_action(row) for row in _rows(table, "protocol")]
            metadata += [Metadata.from_action(row) for row in _rows(table, "metaData")]
            sidecars += [actions.sidecar(row) for row in _rows(table, "sidecar")]
            for row in _rows(table, "txn"):
                stream = streams.of_application(row["appId"])
    return actions.Actions(
        protocol=protocol[-1] if protocol else None,
        metadata=metadata[-1] if metadata else None,
        sidecars=tuple(sidecars),
        stream=stream,
    )


def holders(data: bytes, root: Location, address: str, wanted: pa.Array) -> pa.Table:
    """Every add and remove that may name one of the wanted addresses; others may be among them. Raises Unreadable."""
    if is_json(address):
        return actions.parse(data, root, address).files
    found = [files.none()]
    with reading(address):
        for table in read_in_turns(data, FILE_COLUMNS):
            removes, adds = structs(table, "remove"), structs(table, "add")
            for named in (files.removes(removes, root), files.adds(adds, root)):
                found += [named.filter(files.may_name(named, wanted))]
    return pa.concat_tables(found)


def structs(table: pa.Table, name: str) -> pa.StructArray:
    """The actions of one kind, without the rows of other kinds. Raises Malformed if one has no path."""
    if name not in table.schema.names:
        return pa.array([], pa.struct([pa.field("path", pa.string())]))
    rows = table.column(name).combine_chunks()
    rows = rows.filter(rows.is_valid()) if rows.null_count else rows
    if pc.struct_field(rows, "path").null_count:
        raise Malformed(f"a {name} has no path")
    return rows


def verify(data: bytes, root: Location, address: str) -> None:
    """Can every add and remove of this file be read? Raises Unreadable."""
    if is_json(address):
        actions.parse(data, root, address)
        return
    with reading(address):
        for table in read_in_turns(data, FILE_COLUMNS):
            structs(table, "add")
            structs(table, "remove")


@contextmanager
def reading(address: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError) as exc:
        raise Unreadable(address, f"not a Delta checkpoint: {exc}") from exc


def read_in_turns(data: bytes, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Those of the columns that the file has, since the protocol lets writers leave out any of them; some rows at a
    time, since one file may name every file of a large table."""
    with columnar.opened(data) as file:
        there = {level for path in file.paths for level in _levels(path)}
        _check_spelling(there, columns)
        present = [name for name in columns if name in there]
        if not present:
            return
        rows = 0
        for batch in file.batches(present):
            if set(batch.schema.names) != {name.partition(".")[0] for name in present}:
                raise Malformed(f"asked for {present}, got {batch.schema.names}")
            rows += batch.num_rows
            yield pa.Table.from_batches([batch])
        if rows != file.rows:
            raise Malformed(f"{rows} rows read, its footer counts {file.rows}")


def _levels(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _check_spelling(there: set[str], columns: tuple[str, ...]) -> None:
    """A missing column must not exist under another case: other readers ignore it. And actions on files have paths."""
    wanted = {level.lower(): level for name in columns for level in _levels(name)}
    for name in sorted(there):
        if wanted.get(name.lower(), name) != name:
            raise Malformed(f"it has a column {name} instead of {wanted[name.lower()]}")
    for name in columns:
        action, _, field = name.partition(".")
        if field == "path" and action in there and name not in there:
            raise Malformed(f"its column {action} has no paths")


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    if name not in table.schema.names:
        return []
    column = table.column(name)
    rows: list[dict[str, Any]] = column.filter(column.is_valid()).to_pylist()
    return rows


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
    address = source.location.raw
    if source.size_bytes is not None and len(data) != source.size_bytes:
        raise Unreadable(address, f"{len(data)} bytes instead of {source.size_bytes}")
    known = dict(source.context)
    root, delete_before_ms = Location.parse(known[_ROOT]), int(known[_DELETE_BEFORE])
    live, tolerated, elsewhere = _references_in(data, address, root, delete_before_ms)
    return _batch([], [*live, *tolerated], []) if _UNLISTED in known else _batch(live, tolerated, elsewhere)


def _references_in(data: bytes, address: str, root: Location, delete_before_ms: int) -> _Named:
    if is_json(address):
        return _from_actions(actions.parse(data, root, address).files, delete_before_ms)
    found: _Named = ([], [], [])
    with reading(address):
        for table in read_in_turns(data, FILE_COLUMNS):
            removes = structs(table, "remove")
            kept = removes.filter(pc.greater_equal(files.removal_times(removes), delete_before_ms))
            for named in (files.adds(structs(table, "add"), root), files.removes(kept, root)):
                for whole, more in zip(found, _from_actions(named, delete_before_ms), strict=True):
                    whole.extend(more)
    return found


def _from_actions(named: pa.Table, delete_before_ms: int) -> _Named:
    kept = named.filter(protects(named, delete_before_ms))
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
