"""Which snapshots go, by Iceberg's own rules (`RemoveSnapshots`). Pure: no I/O, the clock is an argument.

1. Refs: `main` stays; any other ref stays while the snapshot it points at is no older than `max-ref-age-ms` (the
   ref's own, else the table's). A ref to a snapshot that is not there goes.
2. What a remaining ref points at stays.
3. A remaining branch keeps its newest ancestors while it has fewer than the minimum or they are young enough. The
   first one that is neither ends the walk, even if an older-placed one is young: timestamps need not be monotonic.
4. What no remaining branch leads to and no remaining tag names (staged, rolled back) stays while it is young.

A ref's own settings win over the table's properties, and those over the service's policy. Two rules are ours. Where
only the policy says how old snapshots may grow, one that was replaced less than a day ago stays, since a query may be
reading it: by Iceberg's rules a snapshot that was current for a month would go minutes after it was replaced, and its
files with it. And what a stream needs to recover stays: Flink, Kafka Connect and Spark look for their newest commit
from the head of their branch back through the parents, and a parent that is gone ends the walk as if they had never
committed. So all that lies between the head and the newest commit of a stream stays with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakesweep.formats import streams
from lakesweep.formats.iceberg.metadata import EPOCH, MAIN, Ref, RefKind, SnapshotEntry, TableMetadata
from lakesweep.model.policy import GRACE_FLOOR, CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot, Snapshot

_ById = Mapping[int, SnapshotEntry]


def ancestors(head: int, by_id: _ById) -> Iterator[SnapshotEntry]:
    """From a snapshot back through its parents, as far as they are still there. A circle ends the walk."""
    seen: set[int] = set()
    entry = by_id.get(head)
    while entry is not None and entry.id not in seen:
        yield entry
        seen.add(entry.id)
        entry = by_id.get(entry.parent) if entry.parent is not None else None


def add_streams(reasons: dict[int, list[str]], refs: Sequence[Ref], by_id: _ById, *, since_ms: int, span: str) -> None:
    """Add to the reasons why snapshots stay. What was committed at `since_ms` or later may be needed."""
    reached: set[int] = set()
    for ref in refs:
        if ref.kind is RefKind.BRANCH:
            line = list(ancestors(ref.snapshot_id, by_id))
            reached.update(entry.id for entry in line)
            newest = _newest(line)
            needed = {stream: entry for stream, entry in newest.items() if entry.timestamp_ms >= since_ms}
            if needed:
                _add_line(reasons, line, needed, f" on {ref}", span)
    # The newest by its time stays wherever it is: what was rolled back, or is staged, may come onto a branch again.
    for stream, entry in _newest(sorted(by_id.values(), key=_age)).items():
        if entry.timestamp_ms >= since_ms and entry.id not in reached:
            reasons.setdefault(entry.id, []).append(streams.newest_commit(stream, " on no branch", span))
        elif entry.timestamp_ms >= since_ms:
            reasons.setdefault(entry.id, [streams.newest_commit(stream, "", span)])


def with_streams(all_refs: Sequence[Ref], staying: Sequence[Ref], by_id: _ById, *, since_ms: int) -> list[Ref]:
    """The refs that stay, and branches past their age that a stream of their own, not of `main`, may come back to."""
    main = next((ref.snapshot_id for ref in all_refs if ref.name == MAIN), None)
    shared = {entry.id for entry in ancestors(main, by_id)} if main is not None else set()

    def has_stream(ref: Ref) -> bool:
        own = [entry for entry in ancestors(ref.snapshot_id, by_id) if entry.id not in shared]
        return ref.kind is RefKind.BRANCH and any(entry.timestamp_ms >= since_ms for entry in _newest(own).values())

    return [ref for ref in all_refs if ref in staying or has_stream(ref)]


def stream_writer(snapshots: Sequence[SnapshotEntry]) -> str | None:
    newest = _newest(sorted(snapshots, key=_age))
    return next(iter(newest), None)


def _newest(line: Sequence[SnapshotEntry]) -> dict[str, SnapshotEntry]:
    found: dict[str, SnapshotEntry] = {}
    for entry in line:
        for stream in streams.of_summary(entry.summary):
            found.setdefault(stream, entry)
    return found


def _add_line(
    reasons: dict[int, list[str]],
    line: Sequence[SnapshotEntry],
    needed: Mapping[str, SnapshotEntry],
    place: str,
    span: str,
) -> None:
    depth = {entry.id: number for number, entry in enumerate(line)}
    last = max(needed, key=lambda stream: depth[needed[stream].id])
    for stream, entry in needed.items():
        reasons.setdefault(entry.id, []).append(streams.newest_commit(stream, place, span))
    for entry in line[: depth[needed[last].id]]:
        reasons.setdefault(entry.id, [streams.on_the_way(last, place)])


def _age(entry: SnapshotEntry) -> tuple[int, int]:
    return -entry.timestamp_ms, entry.id


_MS = timedelta(milliseconds=1)
_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Defaults:
    """What holds where a ref says nothing itself."""

    now_ms: int
    max_age_ms: int
    min_to_keep: int
    max_ref_age_ms: int | None
    floor_ms: int
    """How long a snapshot stays at least after it was replaced, unless its table or branch says how old snapshots may
    grow: that is their owner's choice."""
    stream_ms: int


def plan(metadata: TableMetadata, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
    defaults = _defaults(metadata, policy, now)
    by_id = {entry.id: entry for entry in metadata.snapshots}
    refs = [
        ref
        for ref in metadata.refs
        if (entry := by_id.get(ref.snapshot_id)) is not None
        and not has_outlived(ref, entry, defaults.now_ms, defaults.max_ref_age_ms)
    ]
    refs = with_streams(metadata.refs, refs, by_id, since_ms=defaults.now_ms - defaults.stream_ms)
    reasons = _reasons(refs, by_id, defaults)
    add_streams(reasons, refs, by_id, since_ms=defaults.now_ms - defaults.stream_ms, span=_hours(defaults.stream_ms))
    gone = [entry for entry in metadata.snapshots if entry.id not in reasons]
    return ExpiryPlan(
        head=metadata.address,
        expire=describe(metadata, sorted(gone, key=lambda entry: (entry.timestamp_ms, entry.id))),
        keep=tuple(
            KeptSnapshot(id=str(entry.id), why=", ".join(reasons[entry.id]))
            for entry in metadata.snapshots
            if entry.id in reasons
        ),
        drop_refs=tuple(ref.name for ref in metadata.refs if ref not in refs),
    )


def describe(metadata: TableMetadata, entries: Iterable[SnapshotEntry]) -> tuple[Snapshot, ...]:
    pins: dict[int, list[str]] = defaultdict(list)
    for ref in metadata.refs:
        pins[ref.snapshot_id].append(str(ref))
    return tuple(
        Snapshot(id=str(entry.id), committed_at=entry.committed_at, pins=tuple(pins[entry.id])) for entry in entries
    )


def has_outlived(ref: Ref, entry: SnapshotEntry, at_ms: int, table_limit_ms: int | None) -> bool:
    """Was the snapshot of a ref older then than the ref (else the table) lets it grow? `main` lives for ever."""
    limit = table_limit_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return ref.name != MAIN and limit is not None and at_ms - entry.timestamp_ms > limit


def _defaults(metadata: TableMetadata, policy: CleanupPolicy, now: datetime) -> _Defaults:
    own = metadata.history
    return _Defaults(
        now_ms=(now - EPOCH) // _MS,
        max_age_ms=policy.max_snapshot_age // _MS if own.max_snapshot_age_ms is None else own.max_snapshot_age_ms,
        min_to_keep=policy.min_snapshots_to_keep if own.min_snapshots_to_keep is None else own.min_snapshots_to_keep,
        max_ref_age_ms=own.max_ref_age_ms,
        floor_ms=_floor(policy) // _MS if own.max_snapshot_age_ms is None else 0,
        stream_ms=policy.stream_state // _MS,
    )


def _floor(policy: CleanupPolicy) -> timedelta:
    """An operator who wants snapshots to go sooner than that says so by the policy's own age or grace period."""
    return timedelta(0) if policy.max_snapshot_age < GRACE_FLOOR else min(GRACE_FLOOR, policy.grace_period)


def _reasons(refs: list[Ref], by_id: dict[int, SnapshotEntry], defaults: _Defaults) -> dict[int, list[str]]:
    """Why each remaining snapshot stays. Pins come first; a branch's walk explains only what no pin does."""
    reasons: dict[int, list[str]] = {}
    for ref in refs:
        if ref.snapshot_id in by_id:
            why = f"head of {ref}" if ref.kind is RefKind.BRANCH else str(ref)
            reasons.setdefault(ref.snapshot_id, []).append(why)
    on_a_ref = set(reasons)
    for ref in refs:
        if ref.kind is RefKind.BRANCH:
            on_a_ref.update(entry.id for entry in ancestors(ref.snapshot_id, by_id))
            for entry, why in _walk(ref, by_id, defaults):
                reasons.setdefault(entry.id, [why])
    for entry in by_id.values():
        off_branch_ms = max(defaults.max_age_ms, defaults.floor_ms)
        if entry.id not in on_a_ref and entry.timestamp_ms >= defaults.now_ms - off_branch_ms:
            reasons[entry.id] = [f"not on any branch, younger than {_hours(off_branch_ms)}"]
    return reasons


def _walk(ref: Ref, by_id: dict[int, SnapshotEntry], defaults: _Defaults) -> Iterator[tuple[SnapshotEntry, str]]:
    max_age_ms = defaults.max_age_ms if ref.max_snapshot_age_ms is None else ref.max_snapshot_age_ms
    at_least = defaults.min_to_keep if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    floor_ms = defaults.floor_ms if ref.max_snapshot_age_ms is None else 0
    replaced_ms = defaults.now_ms
    for kept, entry in enumerate(ancestors(ref.snapshot_id, by_id)):
        if kept < at_least:
            yield entry, f"1 of the last {at_least} on {ref}"
        elif entry.timestamp_ms >= defaults.now_ms - max_age_ms:
            yield entry, f"younger than {_hours(max_age_ms)} on {ref}"
        elif floor_ms and replaced_ms >= defaults.now_ms - floor_ms:
            yield entry, f"it was current less than {_hours(floor_ms)} ago on {ref}"
        else:
            return
        replaced_ms = entry.timestamp_ms


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / _MS_PER_HOUR:g} h"
