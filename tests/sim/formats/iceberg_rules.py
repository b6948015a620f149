"""Which snapshots an expiry has to leave alone: Iceberg's own rules and the promises of docs/safety.md, told anew."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tests.sim.formats.iceberg_table import MAIN, MAX_AGE, MAX_REF_AGE, MIN_KEPT, Ref, Snapshot, View, ancestors
from tests.sim.world import Rules

_HOUR = 3_600_000
_DAY = 24 * _HOUR
_STREAM = re.compile(r"flink\.|kafka\.connect\.|spark\.sql\.streaming\.queryId")


def must_stay(view: View, rules: Rules, now_ms: int) -> dict[int, str]:
    """Snapshots of a state that no expiry at that time may take, and why."""
    found: dict[int, str] = {}
    if says_never(view):
        return dict.fromkeys(view.snapshots, "a negative retention means never")
    since_ms = now_ms - int(rules.stream_state * _HOUR)
    staying = {name: ref for name, ref in view.refs.items() if ref_stays(name, ref, view, now_ms)}
    staying |= {name: ref for name, ref in view.refs.items() if _has_stream(ref, view, since_ms)}
    reached: set[int] = set()
    for name, ref in staying.items():
        line = list(ancestors(view.snapshots, ref.snapshot_id))
        found.setdefault(ref.snapshot_id, f"{ref.kind} {name} points at it")
        if ref.kind == "branch":
            reached.update(one.id for one in line)
            for snapshot, why in _walk(name, ref, line, view, rules, now_ms):
                found.setdefault(snapshot.id, why)
            for snapshot in _lifeline(line, since_ms):
                found.setdefault(snapshot.id, "a stream needs it to recover")
    age = int(view.properties.get(MAX_AGE, rules.max_snapshot_age * _HOUR))
    for snapshot in view.snapshots.values():
        if snapshot.id not in reached and snapshot.id not in found and snapshot.at_ms >= now_ms - age:
            found[snapshot.id] = "it is on no branch and younger than the limit"
    for snapshot in _newest(sorted(view.snapshots.values(), key=lambda one: -one.at_ms)).values():
        if snapshot.at_ms >= since_ms:
            found.setdefault(snapshot.id, "it is a stream's newest commit")
    return found


def says_never(view: View) -> bool:
    """Has somebody written a negative retention? People mean never by it."""
    told = [view.properties.get(name) for name in (MAX_AGE, MIN_KEPT, MAX_REF_AGE)]
    told += [one for ref in view.refs.values() for one in (ref.min_kept, ref.max_age, ref.max_ref_age)]
    return any(one is not None and int(one) < 0 for one in told)


def stream_needs(name: str, view: View, rules: Rules, now_ms: int) -> bool:
    """May a stream come back to a branch?"""
    return name in view.refs and _has_stream(view.refs[name], view, now_ms - int(rules.stream_state * _HOUR))


def ref_stays(name: str, ref: Ref, view: View, now_ms: int) -> bool:
    """Has a ref not outlived its own retention or the table's?"""
    if says_never(view):
        return True
    limit = ref.max_ref_age
    if limit is None and MAX_REF_AGE in view.properties:
        limit = int(view.properties[MAX_REF_AGE])
    snapshot = view.snapshots.get(ref.snapshot_id)
    return snapshot is not None and (name == MAIN or limit is None or now_ms - snapshot.at_ms <= limit)


def streams_of(summary: Mapping[str, str]) -> list[str]:
    """The streams that a snapshot's summary shows."""
    job = [f"flink {summary.get('flink.job-id')} {summary.get('flink.operator-id')}"]
    return job if any(_STREAM.match(name) for name in summary) else []


def _walk(
    name: str, ref: Ref, line: list[Snapshot], view: View, rules: Rules, now_ms: int
) -> Iterator[tuple[Snapshot, str]]:
    told = ref.max_age if ref.max_age is not None else view.properties.get(MAX_AGE)
    age = int(told) if told is not None else int(rules.max_snapshot_age * _HOUR)
    least = ref.min_kept if ref.min_kept is not None else int(view.properties.get(MIN_KEPT, rules.min_snapshots))
    floor = 0 if told is not None or rules.max_snapshot_age < 24 else min(_DAY, int(rules.grace * _HOUR))
    replaced_ms = now_ms
    for number, snapshot in enumerate(line):
        if number < least:
            yield snapshot, f"it is one of the last {least} of {name}"
        elif snapshot.at_ms >= now_ms - age:
            yield snapshot, f"it is younger than the limit of {name}"
        elif floor and replaced_ms >= now_ms - floor:
            yield snapshot, f"it was current less than a day ago on {name}"
        else:
            return
        replaced_ms = snapshot.at_ms


def _newest(line: list[Snapshot]) -> dict[str, Snapshot]:
    found: dict[str, Snapshot] = {}
    for snapshot in line:
        for stream in streams_of(snapshot.summary):
            found.setdefault(stream, snapshot)
    return found


def _lifeline(line: list[Snapshot], since_ms: int) -> list[Snapshot]:
    """From the head to the oldest of the streams' newest commits."""
    needed = [one for one in _newest(line).values() if one.at_ms >= since_ms]
    return line[: max(line.index(one) for one in needed) + 1] if needed else []


def _has_stream(ref: Ref, view: View, since_ms: int) -> bool:
    if ref.kind != "branch":
        return False
    main = view.refs.get(MAIN)
    shared = {one.id for one in ancestors(view.snapshots, main.snapshot_id)} if main else set()
    own = [one for one in ancestors(view.snapshots, ref.snapshot_id) if one.id not in shared]
    return any(one.at_ms >= since_ms for one in _newest(own).values())
