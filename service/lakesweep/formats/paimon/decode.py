"""From a manifest's bytes to the names it keeps alive. Pure: it runs in threads, processes and Spark workers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.paimon import manifests, names
from lakesweep.model.errors import Refused, Unreadable
from lakesweep.ports.references import REFERENCE_SCHEMA, TOLERATED, ReferenceSource

MANIFEST = "manifest"
"""A source of which every added file counts."""
IF_THERE = "if_there"
"""The same, but nobody minds if a file is gone: other tools do not keep the changelogs of branches."""
DIFF = "diff"
"""A source of which every file counts, added or deleted, if it is there: a delta that streams read because the table
has no changelog producer. What an overwrite deleted, they read as rows that went."""
INDEX = "index"
"""An index manifest."""

_ADD = pa.scalar(manifests.ADD, pa.int32())
_NO_NAMES = pa.array([], pa.string())


def decode(source: ReferenceSource, data: bytes) -> pa.RecordBatch:
    """The names of the files that one source keeps. What is taken back elsewhere is the liveness module's business. A
    file on an external path is given by its address: it may lie outside of everything that is listed."""
    address = source.location.raw
    if source.size_bytes is not None and len(data) != source.size_bytes:
        raise Unreadable(address, f"it has {len(data)} bytes, but {source.size_bytes} are recorded")
    try:
        if source.kind == INDEX:
            entries = manifests.read_index(data)
            found = pa.array([entry.document.get("_EXTERNAL_PATH") or entry.name for entry in entries], pa.string())
        else:
            found = _file_names(source, data)
    except Refused as exc:
        raise Unreadable(address, exc.reason) from exc
    except (ValueError, KeyError, TypeError, pa.ArrowException) as exc:
        raise Unreadable(address, str(exc)) from exc
    if source.kind in (IF_THERE, DIFF):
        tolerated = pa.repeat(pa.scalar(value=True), len(found))
        return pa.RecordBatch.from_arrays([found, tolerated], schema=REFERENCE_SCHEMA.append(TOLERATED))
    return pa.RecordBatch.from_arrays([found], schema=REFERENCE_SCHEMA)


def _file_names(source: ReferenceSource, data: bytes) -> pa.Array:
    table = manifests.read_columns(data, ["kind", "name", "extra", "external"], expected=source.entries)
    if source.kind != DIFF:
        added = pc.equal(table.column("kind"), _ADD)
        if not pc.all(added, min_count=0).as_py():
            table = table.filter(added)
    if table.column("name").null_count:
        raise ValueError("an entry without a file name")
    if table.column("external").null_count < table.num_rows:
        return pa.array([name for row in table.to_pylist() for name in _addresses(row)], pa.string())
    extra = [chunk.flatten().drop_null() for chunk in table.column("extra").chunks]
    found = pa.concat_arrays([*table.column("name").chunks, *extra, _NO_NAMES])
    if pc.any(pc.starts_with(found, "compacted-changelog-")).as_py():
        found = pa.array([names.stored_name(name) for name in found.to_pylist()], pa.string())
    return found


def _addresses(row: dict[str, Any]) -> list[str]:
    place, slash, spelled = (row["external"] or row["name"]).rpartition("/")
    return [f"{place}{slash}{name}" for name in (names.stored_name(spelled), *(row["extra"] or ()))]
