"""The expiry plan of a Delta table: which versions leave its log, or what stands in the way. Pure. The table's own
properties decide about age. There is nothing to commit: a version is gone when its files are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow.compute as pc

from lakesweep.formats.delta import retention
from lakesweep.formats.delta.log import Checkpoint, LogFile, LogKind
from lakesweep.formats.delta.retention import millis
from lakesweep.formats.delta.state import DeltaState
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.snapshot import ExpiryPlan, KeptSnapshot, Snapshot

_VERSIONED = frozenset({LogKind.COMMIT, LogKind.CHECKSUM, LogKind.CHECKPOINT})
_HOW_TO_CHECKPOINT = (
    "write a checkpoint (deltalake: DeltaTable(…).create_checkpoint(); Spark: the next commit that "
    "delta.checkpointInterval asks one for)"
)


def plan(state: DeltaState, head: str, policy: CleanupPolicy, now: datetime) -> ExpiryPlan:
    """Valid for `head` only."""
    boundary = find_boundary(state, policy, now)
    if boundary is None:
        why = _too_few_left(state, policy, now) or _obstacle(state, now)
        return ExpiryPlan(head=head, keep=_keep(state, None), skipped=why)
    going = retention.released(state.listing, boundary, _cutoff_ms(state, now))
    return ExpiryPlan(head=head, expire=_snapshots(going), keep=_keep(state, boundary))


def find_boundary(state: DeltaState, policy: CleanupPolicy, now: datetime) -> Checkpoint | None:
    """Where the log will begin; None when it stays as it is. Only a checkpoint that was opened counts."""
    if state.last_checkpoint is None or not state.properties.log_cleanup_enabled:
        return None
    cutoff_ms = _cutoff_ms(state, now)
    opened = {one for one, found in state.inspected.items() if found.allows(cutoff_ms)}
    newest = state.version + 1 - policy.min_snapshots_to_keep
    reached = retention.boundaries(state.listing, cutoff_ms=cutoff_ms, max_version=state.last_checkpoint - 1)
    return next((one for one in reversed(reached) if one.version <= newest and one in opened), None)


def boundary_of(state: DeltaState, expiring: ExpiryPlan) -> Checkpoint | None:
    """The checkpoint that the log stands on once the versions of `expiring` are gone: one that was opened, since a
    version may have several; and none behind where a walk of now would end, since the table's properties may have
    changed since the plan."""
    newest = max((int(snapshot.id) for snapshot in expiring.expire), default=None)
    reached = find_boundary(state, CleanupPolicy(), state.as_of)
    if newest is None or reached is None:
        return None
    opened = {one for one, found in state.inspected.items() if found.usable}
    above = (one for one in state.listing.checkpoints if one in opened and one.version > newest)
    planned = next(above, reached)
    return min(planned, reached, key=lambda one: one.version)


def released(state: DeltaState, boundary: Checkpoint | None) -> list[LogFile]:
    return retention.released(state.listing, boundary, _cutoff_ms(state, state.as_of)) if boundary else []


def snapshots(state: DeltaState) -> tuple[Snapshot, ...]:
    return tuple(_snapshot(version, file) for version, file in sorted(state.listing.commits.items()))


def _snapshots(going: list[LogFile]) -> tuple[Snapshot, ...]:
    """One per version; an interrupted run may have left a checkpoint or a checksum without its commit."""
    versions: dict[int, LogFile] = {}
    for file in going:
        if file.name.kind in _VERSIONED and (file.name.kind is LogKind.COMMIT or file.version not in versions):
            versions[file.version] = file
    return tuple(_snapshot(version, file) for version, file in sorted(versions.items()))


def _snapshot(version: int, file: LogFile) -> Snapshot:
    return Snapshot(id=str(version), committed_at=datetime.fromtimestamp((file.modified_ms or 0) / 1000, UTC))


def _keep(state: DeltaState, boundary: Checkpoint | None) -> tuple[KeptSnapshot, ...]:
    first = boundary.version if boundary else 0
    why = (
        "the oldest checkpoint that younger versions are rebuilt from"
        if boundary
        else "no expired checkpoint that later versions can be rebuilt from"
    )
    kept = sorted(version for version in state.listing.commits if version >= first)
    return tuple(
        KeptSnapshot(id=str(version), why=why if version == first else "inside the log's retention or needed for it")
        for version in kept
    )


def _too_few_left(state: DeltaState, policy: CleanupPolicy, now: datetime) -> str | None:
    """The log begins with a checkpoint, and the one that was opened may leave fewer versions than are requested."""
    usual = find_boundary(state, CleanupPolicy(), now)
    if usual is None:
        return None
    return (
        f"the log would begin with the checkpoint of version {usual.version}, and min_snapshots_to_keep = "
        f"{policy.min_snapshots_to_keep} asks for more versions before {state.version}"
    )


def _obstacle(state: DeltaState, now: datetime) -> str | None:
    """Why nothing goes although versions are past retention; None if none are, or if time alone is the remedy."""
    cutoff_ms = _cutoff_ms(state, now)
    old = [
        file
        for version, file in state.listing.commits.items()
        if version < state.version and file.modified_ms is not None and file.modified_ms <= cutoff_ms
    ]
    why = _missing(state) if old else None
    return f"{len(old)} log versions are past delta.logRetentionDuration, but {why}" if why else None


def _missing(state: DeltaState) -> str | None:
    """What the log lacks to begin with a later version, and what would help."""
    if not state.properties.log_cleanup_enabled:
        return "delta.enableExpiredLogCleanup is false"
    if state.last_checkpoint is None:
        return f"the log has no _last_checkpoint: {_HOW_TO_CHECKPOINT}"
    broken = [(one, found) for one, found in state.inspected.items() if not found.usable]
    if broken:
        one, found = broken[0]
        return f"the checkpoint of version {one.version} cannot be used ({found.why}): {_HOW_TO_CHECKPOINT}"
    oldest = min(state.listing.commits)
    if not any(one.complete and one.version > oldest for one in state.listing.checkpoints):
        return f"there is no complete checkpoint behind version {oldest}: {_HOW_TO_CHECKPOINT}"
    if not retention.boundaries(state.listing, cutoff_ms=retention.NEVER, max_version=state.version):
        return (
            "no checkpoint is younger than the log files before it (they were restored or copied), so the log cannot "
            f"begin with one, as in Delta's own cleanup: make a commit, and then {_HOW_TO_CHECKPOINT}"
        )
    return None


def _cutoff_ms(state: DeltaState, now: datetime) -> int:
    return retention.cutoff_ms(now, state.properties.log_retention)


_DAY_MS = 24 * 60 * 60 * 1000


def next_expiry(state: DeltaState, floor: timedelta, grace: timedelta) -> datetime | None:
    """When something becomes old enough next, if nobody commits, after the moment that the state was judged at: removed
    files and change data at the end of their retention (or of the grace period if that is longer), log files at the
    midnight that log cleanup goes by. Too early only costs a look."""
    now_ms = millis(state.as_of)
    retention_ms = now_ms - state.delete_before_ms(floor)
    waits_ms = {retention_ms, max(retention_ms, grace // timedelta(milliseconds=1))}
    begun_ms = [file.modified_ms or now_ms for file in state.listing.commits.values()]
    for actions in (state.removed_below, state.segment.tail.last):
        begun_ms += pc.unique(actions.column("removed_ms").drop_null()).to_pylist()
    moments = [begun + wait for begun in begun_ms for wait in waits_ms]
    if state.properties.log_cleanup_enabled:
        log_ms = state.properties.log_retention // timedelta(milliseconds=1)
        written_ms = (file.modified_ms or now_ms for file in state.listing.files)
        moments += [-(-written // _DAY_MS) * _DAY_MS + log_ms for written in written_ms]
    soonest = min((moment for moment in moments if moment >= now_ms), default=None)
    return None if soonest is None else datetime.fromtimestamp(soonest / 1000, UTC) + timedelta(milliseconds=1)
