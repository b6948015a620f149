"""Was a ref lost? Walks back through the metadata log, commit by commit, from one state to an earlier one. A server
that gets a request to remove a snapshot also drops whatever ref points at it by then, and REST cannot demand that no
new ref appears. So the commits are looked at afterwards: each metadata file names the one that it was made from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from lakesweep.formats.iceberg import retention
from lakesweep.formats.iceberg.metadata import Ref, TableMetadata
from lakesweep.model.location import Location

MAX_STEPS = 200
"""Commits looked at; a longer history between two states is not verified."""

ReadMetadata = Callable[[str], Awaitable[TableMetadata | None]]
"""One metadata file by its address, or None where it cannot be read any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRef:
    """A ref that vanished together with the snapshot it pointed at, in one commit."""

    ref: Ref
    last_seen: str
    """The metadata file that still has both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the log shows. `complete` is False where it does not reach back all the way."""

    lost: tuple[LostRef, ...]
    complete: bool


async def verify(
    current: TableMetadata, earlier: TableMetadata, knowingly: Collection[Ref], read: ReadMetadata
) -> Verified:
    """Refs lost between two states, apart from those that were dropped `knowingly`: as they were, since whoever gives a
    ref another retention wants it to stay. What had outlived its own retention is not lost: any expiry drops it."""
    present = {entry.id for entry in current.snapshots}
    lost: list[LostRef] = []
    reached, steps = current, 0
    async for before, after in _walk_back(current, earlier, read):
        reached, steps = before, steps + 1
        at_ms, limit_ms = after.updated_ms, before.history.max_ref_age_ms
        left = present | {entry.id for entry in after.snapshots}
        gone = {entry.id: entry for entry in before.snapshots if entry.id not in left}
        lost += [
            LostRef(ref=ref, last_seen=before.address)
            for ref in before.refs
            if ref.snapshot_id in gone
            and ref not in knowingly
            and (at_ms is None or not retention.has_outlived(ref, gone[ref.snapshot_id], at_ms, limit_ms))
        ]
    return Verified(lost=tuple(lost), complete=reached.address == earlier.address and steps < MAX_STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """A snapshot that an expiry took although somebody had said, just before, that it stays."""

    snapshot_id: int
    last_seen: str
    """The metadata file that still has it, and says so."""


PlanOf = Callable[[TableMetadata, int | None], Collection[int]]
"""Which snapshots of a state go by the rules, at a time in ms."""


async def overtaken(
    current: TableMetadata, earlier: TableMetadata, expires: PlanOf, read: ReadMetadata
) -> Overtaken | None:
    """An expiry planned at `earlier` and applied to a later state whose rules keep what it removed, by a new branch or
    another property. Removals that `earlier` does not plan are another tool's."""
    async for before, after in _walk_back(current, earlier, read):
        if before.address == earlier.address:
            return None
        gone = {entry.id for entry in before.snapshots} - {entry.id for entry in after.snapshots}
        if gone and gone <= set(expires(earlier, after.updated_ms)):
            kept = gone - set(expires(before, after.updated_ms))
            back = {entry.id for entry in current.snapshots}
            if kept - back:
                return Overtaken(snapshot_id=min(kept - back), last_seen=before.address)
    return None


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
