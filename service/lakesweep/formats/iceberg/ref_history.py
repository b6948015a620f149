"""Was a ref lost? Walks back through the metadata log, commit by commit, from one state to an earlier one. A server
that gets a request to remove a snapshot also drops whatever ref points at it by then, and REST cannot demand that no
new ref appears. So the commits are looked at afterwards: each metadata file names the one that it was made from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection

from lakesweep.formats.iceberg import retention
from lakesweep.formats.iceberg.metadata import Ref, TableMetadata
from lakesweep.model.errors import Refused
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode

MAX_STEPS = 200
"""Commits looked at; a longer history between two states is not verified."""

ReadMetadata = Callable[[str], Awaitable[TableMetadata | None]]
"""One metadata file by its address, or None where it cannot be read any more."""


async def verify(
    current: TableMetadata, earlier: TableMetadata, knowingly: Collection[Ref], read: ReadMetadata
) -> bool:
    """Raise Refused if a ref was lost between two states together with its snapshot, apart from those that were dropped
    `knowingly`: as they were, since a ref that is given another retention is wanted. What had outlived its retention
    is not lost: any expiry drops it. Returns whether the log reaches back all the way."""
    present = {entry.id for entry in current.snapshots}
    reached, steps = current, 0
    async for before, after in _walk_back(current, earlier, read):
        reached, steps = before, steps + 1
        at_ms, limit_ms = after.updated_ms, before.history.max_ref_age_ms
        left = present | {entry.id for entry in after.snapshots}
        gone = {entry.id: entry for entry in before.snapshots if entry.id not in left}
        for ref in before.refs:
            lost = gone.get(ref.snapshot_id)
            if lost is None or ref in knowingly:
                continue
            if at_ms is None or not retention.has_outlived(ref, lost, at_ms, limit_ms):
                # The most serious refusal: something that a person made is gone from the table.
                raise Refused(
                    RefusalCode.REF_LOST,
                    f"{ref} was created on snapshot {ref.snapshot_id} while that snapshot was being expired, and the "
                    f"catalog dropped both. No file was deleted: restore the snapshot from {before.address}",
                )
    return reached.address == earlier.address and steps < MAX_STEPS


PlanOf = Callable[[TableMetadata, int | None], Collection[int]]
"""Which snapshots of a state go by the rules, at a time in ms."""


async def refuse_overtaken(current: TableMetadata, earlier: TableMetadata, expires: PlanOf, read: ReadMetadata) -> None:
    """Raise Refused if an expiry planned at `earlier` was applied to a later state whose rules keep what it removed, by
    a new branch or another property: noticed too late, but before any file was deleted. Removals that `earlier` does
    not plan are another tool's."""
    async for before, after in _walk_back(current, earlier, read):
        if before.address == earlier.address:
            return
        gone = {entry.id for entry in before.snapshots} - {entry.id for entry in after.snapshots}
        if gone and gone <= set(expires(earlier, after.updated_ms)):
            kept = gone - set(expires(before, after.updated_ms)) - {entry.id for entry in current.snapshots}
            if kept:
                raise Refused(
                    RefusalCode.REF_UNVERIFIED,
                    f"a branch, tag or retention that keeps snapshot {min(kept)} was created while that snapshot was "
                    f"being expired. No file was deleted: restore the snapshot from {before.address}",
                )


async def _walk_back(
    current: TableMetadata, earlier: TableMetadata, read: ReadMetadata
) -> AsyncIterator[tuple[TableMetadata, TableMetadata]]:
    """Each commit between two states as the metadata before and after it, newest first, as far as they can be read."""
    after = current
    for _ in range(MAX_STEPS):
        named = Location.parse_or_none(after.metadata_log[-1]) if after.metadata_log else None
        if after.address == earlier.address or named is None:
            return
        before = earlier if named.raw == earlier.address else await read(named.raw)
        if before is None:
            return
        yield before, after
        after = before
