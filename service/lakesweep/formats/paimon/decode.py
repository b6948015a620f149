"""From a manifest's bytes to the names it keeps alive, and which of the names that retained manifests still spell as
ADD are dead, because a DELETE took them back. Pure: it runs in threads, processes and Spark workers. A manifest is
never rewritten when a file of it is deleted: of all changes of one identity in a snapshot's manifests the last one
stands. All of that is about *suspects*, names that some DELETE mentions; any other name is live wherever it is spelled.
A name is dead only when no retained snapshot, tag, branch or changelog has it live in any form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    """The names of the files that one source keeps. What is taken back elsewhere is for `live_names`. A
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


COLUMNS = ("kind", *manifests.IDENTITY)
"""What must be read of a manifest for the functions below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry that concerns a suspect."""

    added: bool
    identity: tuple[Any, ...]
    names: tuple[str, ...]
    """The data file and its extra files."""


def mentioned_in_deletes(table: pa.Table) -> set[str]:
    """Names of files and extra files that the DELETE entries of one manifest mention."""
    deletes = table.filter(pc.equal(table.column("kind"), manifests.DELETE))
    return {name for row in deletes.select(["name", "extra"]).to_pylist() for name in stored_names(row)}


def concerning(table: pa.Table, suspects: pa.Array) -> tuple[Change, ...]:
    table = table.combine_chunks()
    mentions = pc.is_in(table.column("name"), value_set=suspects).to_numpy(zero_copy_only=False).copy()
    for chunk in table.column("extra").chunks:  # one chunk, or none for an empty table
        wanted = pc.is_in(pc.list_flatten(chunk), value_set=suspects)
        mentions[pc.list_parent_indices(chunk).filter(wanted).to_numpy()] = True
    return tuple(
        Change(added=row["kind"] == manifests.ADD, identity=manifests.identity(row), names=tuple(stored_names(row)))
        for row in table.filter(pa.array(mentions, pa.bool_())).to_pylist()
    )


def live_names(
    snapshots: Iterable[Sequence[str]], changelogs: Iterable[str], changes: Mapping[str, Sequence[Change]]
) -> set[str]:
    """Suspects that are live somewhere. Each snapshot is the names of its manifests, base before delta, in order. What
    a changelog's manifest adds is kept, whatever happened to it later. Snapshots in order of commit mostly extend one
    another, and then only what is new is walked."""
    found: set[str] = set()
    standing: dict[tuple[Any, ...], tuple[str, ...]] = {}
    walked: Sequence[str] = ()
    for order in snapshots:
        if list(order[: len(walked)]) != list(walked):
            standing, walked = {}, ()
        for manifest in order[len(walked) :]:
            for change in changes.get(manifest, ()):
                if change.added:
                    standing[change.identity] = change.names
                else:
                    standing.pop(change.identity, None)
        walked = order
        found.update(name for spelled in standing.values() for name in spelled)
    return found | spelled_names(changelogs, changes)


def spelled_names(manifest_names: Iterable[str], changes: Mapping[str, Sequence[Change]]) -> set[str]:
    """Suspects that these manifests add, live or not."""
    return {
        name
        for manifest in manifest_names
        for change in changes.get(manifest, ())
        if change.added
        for name in change.names
    }


def mentioned_names(manifest_names: Iterable[str], changes: Mapping[str, Sequence[Change]]) -> set[str]:
    """Suspects that these manifests add or delete."""
    return {name for manifest in manifest_names for change in changes.get(manifest, ()) for name in change.names}


def stored_names(row: Mapping[str, Any]) -> list[str]:
    return [names.stored_name(row["name"]), *(row["extra"] or ())]
