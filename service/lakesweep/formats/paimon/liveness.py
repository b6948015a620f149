"""Which files that retained manifests still spell as ADD are dead, because a DELETE took them back. Pure. A manifest is
never rewritten when a file of it is deleted: of all changes of one identity in a snapshot's manifests the last one
stands. All is about *suspects*, names that some DELETE mentions; any other name is live wherever it is spelled. A name
is dead only when no retained snapshot, tag, branch or changelog has it live in any form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.formats.paimon import manifests, names

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
    return {name for row in deletes.select(["name", "extra"]).to_pylist() for name in _names(row)}


def concerning(table: pa.Table, suspects: pa.Array) -> tuple[Change, ...]:
    table = table.combine_chunks()
    mentions = pc.is_in(table.column("name"), value_set=suspects).to_numpy(zero_copy_only=False).copy()
    for chunk in table.column("extra").chunks:  # one chunk, or none for an empty table
        wanted = pc.is_in(pc.list_flatten(chunk), value_set=suspects)
        mentions[pc.list_parent_indices(chunk).filter(wanted).to_numpy()] = True
    return tuple(
        Change(added=row["kind"] == manifests.ADD, identity=manifests.identity(row), names=tuple(_names(row)))
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


def _names(row: dict[str, Any]) -> list[str]:
    return [names.stored_name(row["name"]), *(row["extra"] or ())]
