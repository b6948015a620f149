"""Dropping partitions and compacting manifests: what to commit, tried again when somebody else commits first. Dropping
marks every live file of the partitions as deleted in a new snapshot; the files themselves go when the snapshots before
it expire. A partition is found by its bytes in the manifests and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from lakesweep.formats.paimon import commit_files, manifests, merge, retention
from lakesweep.formats.paimon.commit import Changes, CommitOptions, Committer
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.paimon.merge import Entry
from lakesweep.formats.paimon.partitions import Partition
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.errors import CommitConflict, Indeterminate
from lakesweep.ports.run import Fence
from lakesweep.retry import Backoff

T = TypeVar("T")
Reload = Callable[[], Awaitable[PaimonState]]
_FIRST_WAIT_SECONDS = 0.01


async def drop_partitions(
    committer: Committer, lists: ListReader, reload: Reload, wanted: Sequence[Partition], *, fence: Fence, now: datetime
) -> tuple[Partition, ...]:
    """Commit one OVERWRITE snapshot without these partitions, as far as they are still due: since they were found, a
    writer may have come back to one, or the owner to another decision. Returns those that went."""

    async def attempt(state: PaimonState, latest: PaimonSnapshot) -> tuple[Partition, ...] | None:
        due = {partition.raw for partition in retention.due_partitions(state, now).partitions}
        going = tuple(partition for partition in wanted if partition.raw in due)
        changes = await _deletes(lists, latest, frozenset(partition.raw for partition in going))
        if not changes.delta:
            return None
        options = CommitOptions(schema=state.log.schemas[-1], manifest=state.options.manifest)
        await committer.commit(latest, changes, options, now)
        return going

    return await _retried(attempt, reload, fence) or ()


async def compact_manifests(
    committer: Committer, reload: Reload, *, fence: Fence, now: datetime
) -> PaimonSnapshot | None:
    """One COMPACT snapshot with as few manifests as can be, or None when there is nothing to merge."""

    async def attempt(state: PaimonState, latest: PaimonSnapshot) -> PaimonSnapshot | None:
        schema = next((one for one in state.log.schemas if one.id == latest.schema_id), state.log.schemas[-1])
        all_of_them = replace(state.options.manifest, full_threshold=1, merge_min_count=1)
        options = CommitOptions(schema=schema, manifest=all_of_them)
        return await committer.commit(latest, Changes(kind="COMPACT"), options, now)

    return await _retried(attempt, reload, fence)


async def _retried(
    attempt: Callable[[PaimonState, PaimonSnapshot], Awaitable[T | None]], reload: Reload, fence: Fence
) -> T | None:
    """Each time from a fresh look at the table: what was live a moment ago may not be."""
    failures = 0
    while True:
        state = await reload()
        if state.latest is None:
            return None
        await fence.check()
        try:
            return await attempt(state, state.latest)
        except CommitConflict:
            failures += 1
            tries = Backoff(1 + state.options.manifest.max_retries, first=_FIRST_WAIT_SECONDS)
            if failures >= tries.attempts:
                raise
        except (ValueError, KeyError, TypeError) as exc:  # manifests that are damaged, or of a kind we cannot write
            raise Indeterminate(f"nothing can be committed on top of {state.latest.label}: {exc}") from exc
        await tries.pause(failures)


async def _deletes(lists: ListReader, latest: PaimonSnapshot, partitions: frozenset[bytes]) -> Changes:
    if not partitions:
        return Changes(kind="OVERWRITE")
    live: dict[merge.Identity, Entry] = {}
    found: list[commit_files.Shape] = []
    size = entries = 0
    for meta in await lists.manifests_of(latest):
        if partitions.isdisjoint((await lists.by_partition(meta)).column("partition").to_pylist()):
            continue
        data = await lists.read_manifest(meta)
        found.append(commit_files.shape_of(data))
        size, entries = size + meta.size_bytes, entries + meta.entries
        for entry in await asyncio.to_thread(_entries_of, data, partitions, meta.entries):
            if entry["_KIND"] == manifests.ADD:
                live[merge.identity(entry)] = entry
            else:
                live.pop(merge.identity(entry), None)
    if not live:
        return Changes(kind="OVERWRITE")
    return Changes(
        kind="OVERWRITE",
        delta=tuple({**entry, "_KIND": manifests.DELETE} for entry in live.values()),
        delta_shape=commit_files.joined(found),
        bytes_per_entry=size / entries,
        index_entries=await _index_left(lists, latest, partitions),
    )


def _entries_of(data: bytes, partitions: frozenset[bytes], expected: int) -> list[Entry]:
    return [entry for entry in manifests.read_entries(data, expected=expected) if entry["_PARTITION"] in partitions]


async def _index_left(
    lists: ListReader, latest: PaimonSnapshot, partitions: frozenset[bytes]
) -> tuple[dict[str, Any], ...] | None:
    if latest.index_manifest is None:
        return None
    entries = await lists.read_index(latest.index_manifest)
    left = [dict(entry.document) for entry in entries if entry.partition not in partitions]
    return None if len(left) == len(entries) else tuple(left)
