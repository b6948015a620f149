"""The rules of leases, journal entries and holds. Pure: every store loads the rows, calls these functions, and writes
the result.

A lease is valid while it is the newest of its table and `now` is before `expires_at`. A released lease is stored as one
that expired long ago: the row stays for ever, so that tokens only grow. A lease that ends later than any lease can was
granted before the clock was set back; its owner renews it soon, or is gone.

A pause never ends earlier because somebody else pauses the same tables: of two holds of one scope the later end counts,
and no end is the latest. To shorten a hold, lift it first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lakesweep.model.errors import LeaseLost, StateError
from lakesweep.model.run import Lease
from lakesweep.ports.state import BatchRecord, BatchState, Hold

LONGEST_LEASE = timedelta(days=1)
RELEASED = datetime.fromtimestamp(0, UTC)
"""The end of a released lease, whatever the clock was."""


def grant(newest: Lease | None, *, table: str, owner: str, ttl: timedelta, now: datetime) -> Lease | None:
    """The next lease, or None while another owner holds a valid one. An owner that acquires again voids its own
    lease."""
    if newest and newest.owner != owner and now < newest.expires_at <= now + LONGEST_LEASE:
        return None
    token = newest.token + 1 if newest else 1
    return Lease(table=table, owner=owner, token=token, expires_at=now + ttl)


def require_valid(newest: Lease | None, *, table: str, token: int, now: datetime) -> Lease:
    """The newest lease if `token` matches and it has not expired; otherwise raises LeaseLost."""
    if newest is None or newest.token < token:
        raise LeaseLost(f"the lease on {table} with token {token} was never granted by this state store")
    if newest.token > token:
        raise LeaseLost(f"the lease on {table} with token {token} is void: {newest.owner} was granted {newest.token}")
    if now >= newest.expires_at:
        raise LeaseLost(f"the lease on {table} with token {token} ended at {newest.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    return newest


def finished_batch(stored: BatchRecord | None, record: BatchRecord) -> BatchRecord:
    """The journal entry after `record` finished its intent. Finishing again is allowed only with equal content."""
    done = replace(record, state=BatchState.DONE)
    if stored is None:
        raise StateError(f"batch {record.number} of run {record.run_id} has no intent in the journal")
    if stored.state is BatchState.DONE:
        if stored == done:
            return stored
        raise StateError(f"batch {record.number} of run {record.run_id} is already finished with another outcome")
    if (stored.first, stored.count, stored.fencing_token) != (done.first, done.count, done.fencing_token):
        raise StateError(f"batch {record.number} of run {record.run_id} does not match its intent in the journal")
    return done


_NEVER = datetime.max.replace(tzinfo=UTC)


def has_ended(hold: Hold, now: datetime) -> bool:
    """A hold without an end never ends by itself."""
    return _end(hold) <= now


def merged(there: Hold | None, new: Hold, now: datetime) -> Hold:
    """The hold of the scope after `new` was requested."""
    if there is None or has_ended(there, now):
        return new
    if there.by_admin != new.by_admin:
        merged = there if there.by_admin else new  # otherwise a tenant could lift it
    else:
        merged = new if _end(new) >= _end(there) else there
    return replace(merged, ends_at=max(there, new, key=_end).ends_at)


def _end(hold: Hold) -> datetime:
    return hold.ends_at or _NEVER
