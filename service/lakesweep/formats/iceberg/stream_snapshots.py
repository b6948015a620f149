"""What the streams of a table need to recover: the newest snapshot of each, and the way to it. Pure.

Flink, Kafka Connect and Spark find their newest commit alike: from the head of their branch back through the parents,
until a summary has their own id. A parent that is gone ends the walk as if they had never committed. So all that lies
between the head and the newest commit of a stream stays with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakesweep.formats import streams
from lakesweep.formats.iceberg.metadata import MAIN, Ref, RefKind, SnapshotEntry

_ById = Mapping[int, SnapshotEntry]


def ancestors(head: int, by_id: _ById) -> Iterator[SnapshotEntry]:
    """From a snapshot back through its parents, as far as they are still there. A circle ends the walk."""
    seen: set[int] = set()
    entry = by_id.get(head)
    while entry is not None and entry.id not in seen:
        yield entry
        seen.add(entry.id)
        entry = by_id.get(entry.parent) if entry.parent is not None else None


def add(reasons: dict[int, list[str]], refs: Sequence[Ref], by_id: _ById, *, since_ms: int, span: str) -> None:
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
    """The refs that stay, and branches past their age that a stream may still come back to. A stream of `main` does
    not hold the branches that were made from there."""
    main = next((ref.snapshot_id for ref in all_refs if ref.name == MAIN), None)
    shared = {entry.id for entry in ancestors(main, by_id)} if main is not None else set()

    def has_stream(ref: Ref) -> bool:
        own = [entry for entry in ancestors(ref.snapshot_id, by_id) if entry.id not in shared]
        return ref.kind is RefKind.BRANCH and any(entry.timestamp_ms >= since_ms for entry in _newest(own).values())

    return [ref for ref in all_refs if ref in staying or has_stream(ref)]


def writer(snapshots: Sequence[SnapshotEntry]) -> str | None:
    """A stream that the history shows: the one that committed last."""
    newest = _newest(sorted(snapshots, key=_age))
    return next(iter(newest), None)


def _newest(line: Sequence[SnapshotEntry]) -> dict[str, SnapshotEntry]:
    """The first snapshot of each stream."""
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
