"""Checkpoint files: bytes to values. Pure. Reads only the columns that cleanup needs.

A Parquet file carries its own row counts and ends with its footer, so a file that was cut does not open. A JSON
checkpoint has one action per line, like a commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesweep.formats.delta import actions
from lakesweep.formats.delta.actions import Actions, FileAction
from lakesweep.formats.delta.malformed import Malformed
from lakesweep.formats.delta.protocol import Metadata, Protocol
from lakesweep.model.errors import Unreadable
from lakesweep.model.location import Location

_VECTOR = ("storageType", "pathOrInlineDv", "offset")
_ROWS_AT_ONCE = 65_536
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
)


_NEEDS_A_LOOK = r"%|^/|^[A-Za-z][A-Za-z0-9+.-]*:/|^$"


def is_json(path: str) -> bool:
    """Which of the two encodings a checkpoint file has, by its name."""
    return path.endswith(".json")


def read_head(data: bytes, root: Location, address: str) -> Actions:
    """Protocol, metadata and sidecars, as far as this file has them. Raises Unreadable."""
    if is_json(address):
        return replace(actions.parse(data, root, address), files=())
    try:
        table = read_columns(data, _HEAD_COLUMNS)
        protocol = [Protocol.from_action(row) for row in _rows(table, "protocol")]
        metadata = [Metadata.from_action(row) for row in _rows(table, "metaData")]
        sidecars = [actions.sidecar(row) for row in _rows(table, "sidecar")]
    except (pa.ArrowException, OSError, ValueError, TypeError) as exc:
        raise Unreadable(address, f"not a Delta checkpoint: {exc}") from exc
    return Actions(
        protocol=protocol[-1] if protocol else None,
        metadata=metadata[-1] if metadata else None,
        sidecars=tuple(sidecars),
    )


def holders(data: bytes, root: Location, address: str, wanted: frozenset[str]) -> list[FileAction]:
    """Every add and remove that may name one of the wanted addresses; others may be among them. Raises Unreadable."""
    if is_json(address):
        return [
            one for one in actions.parse(data, root, address).files if wanted.intersection(one.addresses + one.aliases)
        ]
    try:
        table = read_columns(data, FILE_COLUMNS)
        adds = _naming(structs(table, "add"), root, wanted)
        removes = _naming(structs(table, "remove"), root, wanted)
        return [
            *(actions.file_action(row, root, removed_ms=None) for row in adds),
            *(actions.file_action(row, root, removed_ms=row.get("deletionTimestamp") or 0) for row in removes),
        ]
    except (pa.ArrowException, OSError, ValueError, TypeError) as exc:
        raise Unreadable(address, f"not a Delta checkpoint: {exc}") from exc


def _naming(rows: pa.StructArray, root: Location, wanted: frozenset[str]) -> list[dict[str, Any]]:
    """Plain paths are compared as columns; whatever is spelled oddly or has a deletion vector is looked at."""
    spelled = pc.struct_field(rows, "path")
    chosen = pc.or_(odd(spelled), pc.is_in(below(root, spelled), value_set=pa.array(sorted(wanted), pa.string())))
    if rows.type.get_field_index("deletionVector") >= 0:
        chosen = pc.or_(chosen, pc.struct_field(rows, "deletionVector").is_valid())
    found: list[dict[str, Any]] = rows.filter(chosen).to_pylist()
    return found


def structs(table: pa.Table, name: str) -> pa.StructArray:
    """The actions of one kind, without the rows of other kinds."""
    if name not in table.schema.names:
        return pa.array([], pa.struct([pa.field("path", pa.string())]))
    column = table.column(name)
    rows = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    rows = rows.filter(rows.is_valid())
    if pc.struct_field(rows, "path").null_count:
        raise Malformed(f"a {name} without its path")
    return rows


def odd(spelled: pa.Array) -> pa.Array:
    """Which paths are not simply a place below the root."""
    return pc.match_substring_regex(spelled, _NEEDS_A_LOOK)


def below(root: Location, spelled: pa.Array) -> pa.Array:
    """Plain paths as raw addresses."""
    return pc.binary_join_element_wise(pa.scalar(root.as_directory().raw), spelled.cast(pa.string()), "")


def verify(data: bytes, root: Location, address: str) -> None:
    """Can every add and remove of this file be read? Raises Unreadable."""
    if is_json(address):
        actions.parse(data, root, address)
        return
    try:
        read_columns(data, FILE_COLUMNS)
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise Unreadable(address, f"not a Delta checkpoint: {exc}") from exc


def read_columns(data: bytes, columns: tuple[str, ...]) -> pa.Table:
    """Those of the columns that the file has; the protocol lets writers leave out any of them."""
    file = pq.ParquetFile(pa.BufferReader(data))
    present = _present(file, columns)
    table = file.read(columns=present)
    _check_columns(table.schema, present)
    return table


def read_in_turns(data: bytes, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """The same, some rows at a time: one file may name every file of a large table."""
    file = pq.ParquetFile(pa.BufferReader(data))
    present = _present(file, columns)
    if not present:
        return
    rows = 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=present):
        _check_columns(batch.schema, present)
        rows += batch.num_rows
        yield pa.Table.from_batches([batch])
    if rows != file.metadata.num_rows:
        raise Malformed(f"{rows} rows read, its footer counts {file.metadata.num_rows}")


def _present(file: pq.ParquetFile, columns: tuple[str, ...]) -> list[str]:
    leaves = [column.path for column in file.schema]
    return [name for name in columns if any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves)]


def _check_columns(schema: pa.Schema, present: list[str]) -> None:
    if set(schema.names) != {name.partition(".")[0] for name in present}:
        raise Malformed(f"asked for {present}, got {schema.names}")


def _rows(table: pa.Table, name: str) -> list[dict[str, Any]]:
    if name not in table.schema.names:
        return []
    column = table.column(name)
    rows: list[dict[str, Any]] = column.filter(column.is_valid()).to_pylist()
    return rows
