"""The expiry plan of one table: snapshots, long-lived changelogs and partitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from lakesweep.formats import streams
from lakesweep.formats.paimon import partitions, retention
from lakesweep.formats.paimon.partitions import Due
from lakesweep.formats.paimon.retention import Decision, Rules
from lakesweep.formats.paimon.snapshots import KNOWN_FIELDS, PaimonSnapshot, Role
from lakesweep.formats.paimon.state import PaimonState
from lakesweep.model.files import Tally
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, Snapshot

_CHANGELOG = "changelog-"
"""Distinguishes a changelog's id from a snapshot's in plans and reports."""


def plan_expiry(state: PaimonState, head: str, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
    """What goes by the table's options and the policy."""
    latest = state.latest
    if latest is None:
        return ExpiryPlan(head=head)
    rules = retention.snapshot_rules(state.options, policy)
    snapshots = retention.decide(
        state.snapshots,
        latest_id=latest.id,
        rules=rules,
        consumers=state.snapshot_consumers,
        now=now,
        streams=_newest_of_streams(state.log.snapshots, policy, now),
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
        return Due(problem=f"{latest.label} has fields we do not know ({fields}), so partitions cannot be dropped")
    return due


def resolve(state: PaimonState, plan: ExpiryPlan) -> list[PaimonSnapshot]:
    """The snapshots and changelogs that a plan names, as far as they are still the same ones and
    nobody has come to need them since."""
    wanted = {(snapshot.id, snapshot.committed_at) for snapshot in plan.expire}
    return [
        snapshot
        for snapshot in (*state.log.snapshots, *state.log.changelogs)
        if (_model_id(snapshot), snapshot.committed_at) in wanted
        and snapshot is not state.latest
        and not state.is_to_be_read(snapshot)
    ]


def roles_of(plan: ExpiryPlan) -> list[Role]:
    """Whether a plan expires snapshots, changelogs or both."""
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
    rules = retention.changelog_rules(state.options, snapshots)
    all_but_newest: Sequence[PaimonSnapshot] = state.changelogs[:-1]
    return retention.decide(all_but_newest, latest_id=latest_id, rules=rules, consumers=state.log.consumers, now=now)
