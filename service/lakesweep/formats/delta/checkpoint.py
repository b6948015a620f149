"""Checkpoint files: bytes to values. Pure. Reads only the columns that cleanup needs.

A Parquet file carries its own row counts and ends with its footer, so a truncated file does not open. A JSON checkpoint
has one action per line, like a commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats import columnar, streams
from lakesweep.formats.delta import actions, files
from lakesweep.formats.delta.actions import Actions
from lakesweep.formats.delta.paths import Malformed
from lakesweep.formats.delta.protocol import Metadata, Protocol
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location

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
    """Which of the two encodings a checkpoint file has, by its name."""
    return path.endswith(".json")


def read_head(data: bytes, root: Location, address: str) -> Actions:
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
    return Actions(
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
    """Any error while reading a checkpoint file makes it unreadable."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError) as exc:
        raise Unreadable(address, f"not a Delta checkpoint: {exc}") from exc


def read_in_turns(data: bytes, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Those of the columns that the file has, since the protocol lets writers leave out any of them; some rows at a
    time, since one file may name every file of a large table."""
    with columnar.opened(data) as file:
        present = _present(file.paths, columns)
        if not present:
            return
        rows = 0
        for batch in file.batches(present):
            _check_columns(batch.schema, present)
            rows += batch.num_rows
            yield pa.Table.from_batches([batch])
        if rows != file.rows:
            raise Malformed(f"{rows} rows read, its footer counts {file.rows}")


def _present(paths: list[str], columns: tuple[str, ...]) -> list[str]:
    there = {level for path in paths for level in _levels(path)}
    _check_spelling(there, columns)
    return [name for name in columns if name in there]


def _levels(name: str) -> list[str]:
    """A nested column and all that it is nested in."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _check_spelling(there: set[str], columns: tuple[str, ...]) -> None:
    """A missing column must not exist under another case of its name, because other readers ignore case. And actions on
    files have paths."""
    wanted = {level.lower(): level for name in columns for level in _levels(name)}
    for name in sorted(there):
        if wanted.get(name.lower(), name) != name:
            raise Malformed(f"it has a column {name} instead of {wanted[name.lower()]}")
    for name in columns:
        action, _, field = name.partition(".")
        if field == "path" and action in there and name not in there:
            raise Malformed(f"its column {action} has no paths")


def _check_columns(schema: pa.Schema, present: list[str]) -> None:
    if set(schema.names) != {name.partition(".")[0] for name in present}:
        raise Malformed(f"asked for {present}, got {schema.names}")


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    if name not in table.schema.names:
        return []
    column = table.column(name)
    rows: list[dict[str, Any]] = column.filter(column.is_valid()).to_pylist()
    return rows
