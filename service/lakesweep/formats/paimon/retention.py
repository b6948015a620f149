"""Which snapshots, long-lived changelogs and partitions go, by Paimon's own rules. Pure: no I/O, no clock. A snapshot
goes when it is the oldest, is not among the last `num-retained.min`, no consumer still has to read it, and it has been
replaced for longer than `time-retained` or more than `num-retained.max` stand behind it; at most `expire.limit` at
once. The table's options come first, then the policy; one whose retention nobody has touched does not undercut Paimon's
own number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakesweep.formats import streams
from lakesweep.formats.paimon import partitions
from lakesweep.formats.paimon.options import DEFAULT_NUM_MIN, TableOptions
from lakesweep.formats.paimon.partitions import Due
from lakesweep.formats.paimon.reader import Log
from lakesweep.formats.paimon.snapshots import KNOWN_FIELDS, PaimonSnapshot, Role, bases_of_pending_commits
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.files import Tally
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot, Snapshot

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
    needed: Mapping[int, str] | None = None,
) -> Decision:
    """Walk from the oldest up and stop at the first that stays. Gaps in the ids are stepped over. `needed` says why a
    snapshot stays whatever its age, by its id."""
    cutoff_millis = int((now - rules.time).astimezone(UTC).timestamp() * 1000)
    expire: list[int] = []
    why: str | None = None
    for index, snapshot in enumerate(snapshots):
        following = snapshots[index + 1] if index + 1 < len(snapshots) else None
        why = (
            _protected(snapshot.id, latest_id, rules, consumers)
            or (needed or {}).get(snapshot.id)
            or _over_the_limit(len(expire), rules)
            or _young(snapshot, following, latest_id, rules, cutoff_millis)
        )
        if why:
            break
        expire.append(snapshot.id)
    kept = [
        KeptSnapshot(
            id=str(snapshot.id),
            why=_protected(snapshot.id, latest_id, rules, consumers)
            or (needed or {}).get(snapshot.id)
            or why
            or "it is the newest",
        )
        for snapshot in snapshots[len(expire) :]
    ]
    return Decision(expire=tuple(expire), keep=tuple(kept))


def _protected(snapshot_id: int, latest_id: int, rules: Rules, consumers: Mapping[str, int]) -> str | None:
    if snapshot_id == latest_id:
        return "it is the latest"
    if snapshot_id > latest_id - rules.num_min:
        return f"it is one of the last {rules.num_min}"
    for name, following in sorted(consumers.items()):
        if following <= snapshot_id:
            return f"consumer {name} still has to read it"
    return None


def _over_the_limit(expired: int, rules: Rules) -> str | None:
    return f"at most {rules.limit} expire at one time" if expired >= rules.limit else None


def _young(
    snapshot: PaimonSnapshot, following: PaimonSnapshot | None, latest_id: int, rules: Rules, cutoff_millis: int
) -> str | None:
    """A snapshot's age counts from when it was replaced: until then it was what everybody read."""
    if snapshot.id <= latest_id - rules.num_max:
        return None
    newest = max(snapshot.time_millis, following.time_millis if following else snapshot.time_millis)
    return f"it was current less than {rules.time / timedelta(hours=1):g} h ago" if newest >= cutoff_millis else None


_CHANGELOG = "changelog-"
"""Distinguishes a changelog's id from a snapshot's in plans and reports."""


def plan_expiry(state: PaimonState, head: str, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
    latest = state.latest
    if latest is None:
        return ExpiryPlan(head=head)
    rules = snapshot_rules(state.options, policy)
    snapshots = decide(
        state.snapshots,
        latest_id=latest.id,
        rules=rules,
        consumers=state.snapshot_consumers,
        now=now,
        needed=_newest_of_streams(state.log.snapshots, policy, now) | _bases_of_pending_commits(state.log),
    )
    changelogs = _changelogs(state, latest.id, rules, now)
    due = due_partitions(state, now)
    by_id = {snapshot.id: snapshot for snapshot in state.snapshots}
    lasting = {snapshot.id: snapshot for snapshot in state.changelogs}
    return ExpiryPlan(
        head=head,
        expire=(
            *(as_model(by_id[number], state) for number in snapshots.expire),
            *(as_model(lasting[number], state) for number in changelogs.expire),
        ),
        keep=snapshots.keep,
        partitions=tuple(partition.path for partition in due.partitions),
        partition_files=sum((partition.holds for partition in due.partitions), Tally()),
        skipped=due.problem,
    )


def _newest_of_streams(snapshots: Sequence[PaimonSnapshot], policy: CleanupPolicy, now: datetime) -> dict[int, str]:
    """By its id, why a stream may still need the newest snapshot that it committed: it asks for that one to know what
    it has committed, from the latest down to the first that is there."""
    newest = {stream: one for one in snapshots if (stream := streams.of_commit(one.document)) is not None}
    span = f"{policy.stream_state / timedelta(hours=1):g} h"
    return {
        one.id: streams.newest_commit(stream, "", span)
        for stream, one in newest.items()
        if now - one.committed_at <= policy.stream_state
    }


def _bases_of_pending_commits(log: Log) -> dict[int, str]:
    """By its id, why a snapshot stays that a commit of ours was made from: without it nobody could tell any more
    whether that commit hides a rollback."""
    return {
        number: f"snapshot/LATEST is behind {ours.label}, which Lakesweep committed on top of it: it can expire after "
        f"the next commit, or once {log.snapshots[-1].id} is written into snapshot/LATEST"
        for number, ours in bases_of_pending_commits(log.snapshots, log.latest_hint).items()
    }


def due_partitions(state: PaimonState, now: datetime) -> Due:
    """Partitions to drop now; none before the check interval has passed."""
    expiry = state.options.partitions
    latest = state.latest
    if latest is None or not partitions.check_is_due(state.partitions_checked_at, expiry.check_interval, now):
        return Due()
    due = partitions.find_due(state.partitions, state.log.schemas[-1].partition_keys, expiry, now, state.writers_offset)
    unknown = latest.document.keys() - KNOWN_FIELDS
    if due.partitions and unknown:
        fields = ", ".join(sorted(unknown))
        return Due(problem=f"{latest.label} has unknown fields ({fields}), so partitions cannot be dropped")
    return due


def resolve(state: PaimonState, plan: ExpiryPlan) -> list[PaimonSnapshot]:
    """The snapshots and changelogs that a plan names, if they are still the same and nobody needs them since."""
    wanted = {(snapshot.id, snapshot.committed_at) for snapshot in plan.expire}
    return [
        snapshot
        for snapshot in (*state.log.snapshots, *state.log.changelogs)
        if (_model_id(snapshot), snapshot.committed_at) in wanted
        and snapshot is not state.latest
        and not state.is_to_be_read(snapshot)
    ]


def roles_of(plan: ExpiryPlan) -> list[Role]:
    lasting = [snapshot.id.startswith(_CHANGELOG) for snapshot in plan.expire]
    return [*([Role.CHANGELOG] if any(lasting) else []), *([] if all(lasting) else [Role.SNAPSHOT])]


def as_model(snapshot: PaimonSnapshot, state: PaimonState) -> Snapshot:
    """As the algorithm knows it, with what holds it."""
    pins = [f"tag {tag.name}" for tag in state.log.tags if tag.id == snapshot.id]
    pins += [f"consumer {name}" for name, following in sorted(state.log.consumers.items()) if following == snapshot.id]
    if snapshot is state.latest:
        pins.insert(0, "branch main")
    return Snapshot(id=_model_id(snapshot), committed_at=snapshot.committed_at, pins=tuple(pins))


def _model_id(snapshot: PaimonSnapshot) -> str:
    return f"{_CHANGELOG}{snapshot.id}" if snapshot.role is Role.CHANGELOG else str(snapshot.id)


def _changelogs(state: PaimonState, latest_id: int, snapshots: Rules, now: datetime) -> Decision:
    if not state.options.decoupled:
        return Decision(expire=(), keep=())
    rules = changelog_rules(state.options, snapshots)
    all_but_newest: Sequence[PaimonSnapshot] = state.changelogs[:-1]
    return decide(all_but_newest, latest_id=latest_id, rules=rules, consumers=state.log.consumers, now=now)
