"""Skip what has not changed: a cycle that can find nothing new ends once the head was read. Decides nothing else.

When a cycle has cleaned up and left nothing behind, it notes the head, the rules and when something becomes old enough
next. As long as all of that still holds, the next cycle would find nothing among what snapshots name. Files of failed
jobs do not move the head, and only a listing finds them. So a cycle is skipped only while the last executed listing is
recent enough: for `listing_interval_hours` or, if that is not set, for the table's regular wait. Without an interval
every regular cycle therefore lists, and only a cycle ahead of its time ends here. Of manual runs only
`run --no-listing` is skipped: it would not list anyway.

The note is removed before any other cycle begins: one that is refused, fails or is killed leaves none.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakesweep import __version__
from lakesweep.cleanup.plan import Planned
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.cleanup.run_recorder import RunRecorder
from lakesweep.cleanup.table_notes import LastListing
from lakesweep.model.policy import CleanupPolicy
from lakesweep.model.run import ListingMode, Outcome
from lakesweep.ports.table import KnowsItsTrace, TableView

REASON = "unchanged"
_NEVER = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    head: str
    trace: str
    rules: str
    listed_at: datetime | None
    """When the last listing began, executed or not."""
    swept_at: datetime | None
    """When the last one began whose plan was executed to its end."""
    comes_of_age: datetime


async def skip(ports: Ports, context: RunContext, recorder: RunRecorder) -> bool:
    """End the cycle here if nothing has changed. Otherwise the note is no longer valid."""
    if not context.execute:
        return False
    note = await _recall(ports)
    if note is None:
        return False
    if await _stands(ports, context, note):
        recorder.note(
            outcome=Outcome.DONE,
            reason=REASON,
            unchanged=True,
            head=note.head,
            last_listed_at=note.listed_at,
            comes_of_age=note.comes_of_age,
            planned=recorder.priced(recorder.requests.so_far, recorder.elapsed_seconds),
        )
        return True
    await ports.state.remember(_name(ports), "")
    return False


async def remember(
    ports: Ports,
    context: RunContext,
    recorder: RunRecorder,
    planned: Planned,
    *,
    after: TableView,
    listed: LastListing,
) -> None:
    """The cycle is over, and left the table as `after` shows it. A note needs one that left nothing for later."""
    plan, policy = planned.orphans, context.policy
    left = plan.skipped_sources or plan.unconfirmed.files or recorder.run.spared or policy.confirm_after
    if left or not after.plan_expiry(policy, planned.at).empty:
        return
    comes_of_age = after.next_expiry(policy, planned.at) or planned.at + _NEVER
    recorder.note(comes_of_age=comes_of_age)
    note = {
        "head": after.head,
        "trace": after.trace,
        "rules": _rules(policy),
        "listed_at": listed.at.isoformat() if listed.at else None,
        "swept_at": listed.swept_at.isoformat() if listed.swept_at else None,
        "comes_of_age": comes_of_age.isoformat(),
    }
    await ports.state.remember(_name(ports), json.dumps(note))


async def _stands(ports: Ports, context: RunContext, note: _Note) -> bool:
    now = ports.clock.now()
    if not _needs_no_listing(context, note, now) or now >= note.comes_of_age:
        return False
    if note.rules != _rules(context.policy) or await ports.state.pending_expiry(ports.table.ref.label) is not None:
        return False
    table = ports.table
    if isinstance(table, KnowsItsTrace) and note.trace and await table.is_still_at(note.trace):
        return True
    return await table.head() == note.head


def _needs_no_listing(context: RunContext, note: _Note, now: datetime) -> bool:
    """A clock that was set back proves nothing."""
    match context.listing:
        case ListingMode.ALWAYS:
            return False
        case ListingMode.NEVER:
            return note.listed_at is not None and note.listed_at <= now
        case ListingMode.WHEN_DUE:
            serves = context.policy.listing_interval or context.regular_wait
            return note.swept_at is not None and note.swept_at <= now < note.swept_at + serves


async def _recall(ports: Ports) -> _Note | None:
    noted = json.loads(await ports.state.recall(_name(ports)) or "{}")
    if not noted or "swept_at" not in noted:  # none, or of a version that noted less
        return None
    return _Note(
        head=noted["head"],
        trace=noted.get("trace", ""),
        rules=noted["rules"],
        listed_at=_moment(noted["listed_at"]),
        swept_at=_moment(noted["swept_at"]),
        comes_of_age=datetime.fromisoformat(noted["comes_of_age"]),
    )


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _rules(policy: CleanupPolicy) -> str:
    """Another version of this program may decide otherwise by the same policy."""
    return hashlib.sha256(f"{__version__} {policy!r}".encode()).hexdigest()


def _name(ports: Ports) -> str:
    return f"unchanged:{ports.table.ref.label}"
