"""Which snapshots and long-lived changelogs go, by Paimon's own rules. Pure: no I/O, no clock, no logging.

A snapshot goes when it is the oldest, is not among the last `num-retained.min`, no consumer still has to read
it, and it has been replaced for longer than `time-retained` or more than `num-retained.max` stand behind it.
At most `expire.limit` go at once. The table's own options come first, then the service's policy. A policy whose
retention nobody has touched does not undercut the number of snapshots that Paimon keeps by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakesweep.formats.paimon.options import DEFAULT_NUM_MIN, TableOptions
from lakesweep.formats.paimon.snapshots import PaimonSnapshot
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import KeptSnapshot

_UNTOUCHED = (CleanupPolicy().max_snapshot_age, CleanupPolicy().min_snapshots_to_keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How many and how long, for snapshots or for changelogs."""

    num_min: int
    num_max: int
    time: timedelta
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Ids that go, ascending, and the first rule that keeps each of the others."""

    expire: tuple[int, ...]
    keep: tuple[KeptSnapshot, ...]


def snapshot_rules(options: TableOptions, policy: CleanupPolicy) -> Rules:
    """The table's options; where it sets none the policy; and where that was left as it is Paimon's own minimum."""
    own = options.retention
    unsaid = (policy.max_snapshot_age, policy.min_snapshots_to_keep) == _UNTOUCHED
    by_policy = max(DEFAULT_NUM_MIN, policy.min_snapshots_to_keep) if unsaid else policy.min_snapshots_to_keep
    num_min = own.num_min if own.num_min is not None else by_policy
    return Rules(
        num_min=min(num_min, own.num_max),
        num_max=own.num_max,
        time=own.time if own.time is not None else policy.max_snapshot_age,
        limit=own.limit,
    )


def changelog_rules(options: TableOptions, snapshots: Rules) -> Rules:
    """The table's options, and what holds for snapshots where it sets none."""
    own = options.changelog
    num_min = own.num_min if own.num_min is not None else snapshots.num_min
    num_max = own.num_max if own.num_max is not None else snapshots.num_max
    return Rules(
        num_min=min(num_min, num_max),
        num_max=num_max,
        time=own.time if own.time is not None else snapshots.time,
        limit=snapshots.limit,
    )


def decide(
    snapshots: Sequence[PaimonSnapshot],
    *,
    latest_id: int,
    rules: Rules,
    consumers: Mapping[str, int],
    now: datetime,
    streams: Mapping[int, str] | None = None,
) -> Decision:
    """Walk from the oldest up and stop at the first that stays. Gaps in the ids are stepped over. `streams` says of
    which streams a snapshot is the newest, by its id: it stays whatever its age."""
    cutoff_millis = int((now - rules.time).astimezone(UTC).timestamp() * 1000)
    expire: list[int] = []
    why: str | None = None
    for index, snapshot in enumerate(snapshots):
        following = snapshots[index + 1] if index + 1 < len(snapshots) else None
        why = (
            _protected(snapshot.id, latest_id, rules, consumers)
            or (streams or {}).get(snapshot.id)
            or _out_of_turn(len(expire), rules)
            or _young(snapshot, following, latest_id, rules, cutoff_millis)
        )
        if why:
            break
        expire.append(snapshot.id)
    kept = [
        KeptSnapshot(
            id=str(snapshot.id),
            why=_protected(snapshot.id, latest_id, rules, consumers)
            or (streams or {}).get(snapshot.id)
            or why
            or "it is the newest",
        )
        for snapshot in snapshots[len(expire) :]
    ]
    return Decision(expire=tuple(expire), keep=tuple(kept))


def _protected(snapshot_id: int, latest_id: int, rules: Rules, consumers: Mapping[str, int]) -> str | None:
    """Rules that hold whatever its age."""
    if snapshot_id == latest_id:
        return "it is the latest"
    if snapshot_id > latest_id - rules.num_min:
        return f"it is one of the last {rules.num_min}"
    for name, following in sorted(consumers.items()):
        if following <= snapshot_id:
            return f"consumer {name} still has to read it"
    return None


def _out_of_turn(expired: int, rules: Rules) -> str | None:
    return f"at most {rules.limit} expire at one time" if expired >= rules.limit else None


def _young(
    snapshot: PaimonSnapshot, following: PaimonSnapshot | None, latest_id: int, rules: Rules, cutoff_millis: int
) -> str | None:
    """A snapshot's age counts from when it was replaced: until then it was what everybody read."""
    if snapshot.id <= latest_id - rules.num_max:
        return None
    newest = max(snapshot.time_millis, following.time_millis if following else snapshot.time_millis)
    return f"it was current less than {rules.time / timedelta(hours=1):g} h ago" if newest >= cutoff_millis else None
