"""The checks between a plan and the first delete. Pure: values in, a Refusal or None out.

A refusal is an outcome with a code and a sentence; a guard never shrinks the plan silently. The plan is still saved and
printed in full, so that a person can look at what was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from lakesweep.model import units
from lakesweep.model.files import OrphanPlan, Reason, Tally, Verdict
from lakesweep.model.location import Location
from lakesweep.model.policy import CleanupPolicy, OnMissing
from lakesweep.model.refusal import RefusalCode
from lakesweep.model.run import Refusal
from lakesweep.model.table import TableRef
from lakesweep.ports.surroundings import DirectoryIdentity, Neighbours
from lakesweep.ports.table import TableState

NOTHING = Tally()


Identities = Mapping[Location, DirectoryIdentity]
_NO_IDENTITIES: Identities = {}


def cutoff(policy: CleanupPolicy, minimum_age: timedelta, now: datetime, store_now: datetime) -> datetime:
    """Unreferenced objects modified at or after this stay. The slower of the two clocks decides."""
    return min(now, store_now) - max(policy.grace_period, minimum_age)


def check_clock(policy: CleanupPolicy, now: datetime, store_now: datetime) -> Refusal | None:
    """Ages mean nothing if the two clocks differ by more than `max_clock_skew`."""
    skew = abs(now - store_now)
    if skew <= policy.max_clock_skew:
        return None
    return Refusal(
        code=RefusalCode.CLOCK_SKEW,
        reason=f"this machine's clock and the store's differ by {_span(skew)}, more than "
        f"max_clock_skew_minutes allows ({_span(policy.max_clock_skew)}): correct the clock first",
    )


def check_tenant_root(state: TableState, tenant_root: Location) -> Refusal | None:
    """A table outside its tenant's root is somebody else's."""
    if state.location == tenant_root or tenant_root.contains(state.location):
        return None
    return Refusal(
        code=RefusalCode.OUTSIDE_ROOT,
        reason=f"the table is at {state.location}, outside the tenant's root {tenant_root}: "
        "nothing outside the root is ever touched",
    )


def check_neighbours(
    state: TableState, neighbours: Neighbours, identities: Identities = _NO_IDENTITIES
) -> Refusal | None:
    """No other table may be in this one's place, and where the tables of its dataset are must be known."""
    if neighbours.problem is None:
        return check_overlap(state, neighbours.places, identities)
    return Refusal(
        code=RefusalCode.NEIGHBOURS_UNKNOWN,
        reason="the locations of the other tables of this dataset could not be read, so they may overlap with this "
        f"one: {neighbours.problem}",
    )


def check_overlap(
    state: TableState, neighbours: Mapping[TableRef, Iterable[Location]], identities: Identities = _NO_IDENTITIES
) -> Refusal | None:
    """Two tables in one place: what is an orphan for one may be live in the other. `identities` says which local
    places are one directory under two names."""
    for other, locations in neighbours.items():
        if other == state.ref:
            continue
        for theirs in locations:
            for mine in state.roots:
                if mine.overlaps(theirs) or _are_one(mine, theirs, identities):
                    return Refusal(
                        code=RefusalCode.OVERLAP,
                        reason=f"{state.ref} ({mine}) and {other} ({theirs}) overlap in storage: "
                        "move one of them, files there may belong to either",
                    )
    return _check_own_roots(state, identities)


def _check_own_roots(state: TableState, identities: Identities) -> Refusal | None:
    """One directory under two names is listed twice, and what is live under one name looks dead under the other."""
    for number, one in enumerate(state.roots):
        found = identities.get(one)
        for other in (*state.roots[:number], *([one] if found and found.repeats_itself else [])):
            if _are_one(one, other, identities):
                return Refusal(
                    code=RefusalCode.OVERLAP,
                    reason=f"{other} and {one} are the same directory under two names (a link or a mount): use "
                    f"one name for {state.ref}, or its live files look like orphans under the other name",
                )
    return None


def _are_one(one: Location, other: Location, identities: Identities) -> bool:
    mine, theirs = identities.get(one), identities.get(other)
    return mine is not None and theirs is not None and mine.overlaps(theirs)


def check_stayed(listed: TableState, marked: TableState) -> Refusal | None:
    """The listing is judged by references that were read later: both must be of the same table in the same place."""
    if listed.roots != marked.roots or listed.table_uuid != marked.table_uuid:
        what = "moved or was replaced"
    elif listed.minimum_age < marked.minimum_age or (marked.stream and not listed.stream):
        what = "began to keep unreferenced files longer"
    else:
        return None
    return Refusal(
        code=RefusalCode.TABLE_CHANGED,
        reason=f"the table {what} while it was being listed: the next cycle will see a consistent state",
    )


def check_plan(
    plan: OrphanPlan,
    state: TableState,
    policy: CleanupPolicy,
    foreign_owner: str | None,
    approved: Tally = NOTHING,
    *,
    new_place: str | None = None,
    is_approved: bool = False,
) -> Refusal | None:
    """Everything that must be true of a finished plan, the most serious first. The ceilings do not count what a person
    approved; no other guard looks at approvals, except that a ghost's plan must itself be approved, exactly as it is
    (`is_approved`). `new_place` is the reason why the table's place may be somebody else's, if there is one."""
    return (
        _check_view(plan, state)
        or _check_missing(plan, policy)
        or (foreign_owner and Refusal(code=RefusalCode.FOREIGN_TABLE, reason=foreign_owner))
        or _check_whole(plan, state)
        or _check_ceilings(plan, policy, approved)
        or _check_place(plan, approved, new_place)
        or _check_approved(plan, state, is_approved=is_approved)
        or None
    )


def _check_whole(plan: OrphanPlan, state: TableState) -> Refusal | None:
    """For a ghost: one used file means that it is not a ghost, and one young file shows that somebody works there."""
    live, young = (plan.verdicts.get(one, NOTHING).files for one in (Verdict.LIVE, Verdict.YOUNG))
    if state.goes_whole and live:
        return Refusal(
            code=RefusalCode.GHOST_CLAIMED,
            reason=f"{state.location} is not a ghost: {live} files there are in use, so nothing in it is deleted",
        )
    if not state.goes_whole or not young:
        return None
    return Refusal(
        code=RefusalCode.GHOST_YOUNG,
        reason=f"{young} files at {state.location} are younger than ghost_grace_hours, or have not been seen for "
        "confirm_after_hours yet: somebody may still write there, so nothing in it is deleted",
    )


def _check_approved(plan: OrphanPlan, state: TableState, *, is_approved: bool) -> Refusal | None:
    if not state.goes_whole or is_approved or not plan.candidates.files:
        return None
    return Refusal(
        code=RefusalCode.GHOST_NOT_APPROVED,
        reason=f"no configured catalog or table claims {state.location}, but only a person can know whether "
        f"anybody else does: look at this plan of {plan.candidates.files} files, then approve it with its digest",
    )


def _check_view(plan: OrphanPlan, state: TableState) -> Refusal | None:
    """Signs that we look at the table wrongly: nothing live, or nothing listed that matches what is live."""
    if state.snapshots and plan.references == 0:
        return Refusal(
            code=RefusalCode.EMPTY_LIVE_SET,
            reason=f"the table has {len(state.snapshots)} snapshots, yet no live file was found: "
            "its metadata is damaged or was read wrongly",
        )
    if state.counted_files is not None and plan.references < state.counted_files:
        return Refusal(
            code=RefusalCode.SHORT_LIVE_SET,
            reason=f"the table's own count is {state.counted_files} live files, yet only "
            f"{plan.references} references were read",
        )
    listed = sum((tally.files for tally in plan.verdicts.values()), 0)
    # Files that only expiring snapshots name are expected to match nothing, and their addresses come from the metadata.
    if (plan.listed or state.shortlist) and listed and plan.references and plan.matched == 0:
        return Refusal(
            code=RefusalCode.NOTHING_MATCHES,
            reason=f"none of {listed} listed objects matches any of {plan.references} references: the "
            "addresses in the table's metadata do not match those in storage",
        )
    return None


def _check_missing(plan: OrphanPlan, policy: CleanupPolicy) -> Refusal | None:
    if plan.missing_clash:
        return Refusal(
            code=RefusalCode.MISSING_CLASH,
            reason=f"a live file that storage does not show has the same name as an object about to be deleted "
            f"({plan.missing_clash[0]}): the table's address is probably wrong",
        )
    if plan.missing_count and policy.on_missing is OnMissing.REFUSE:
        shown = plan.missing[0] if plan.missing else "?"
        return Refusal(
            code=RefusalCode.MISSING_LIVE_FILES,
            reason=f"live files are missing from storage: {plan.missing_count} of them, first {shown}; the table is "
            'damaged or its location is wrong: find out which, then set on_missing = "report" to clean it anyway',
        )
    return None


def _check_ceilings(plan: OrphanPlan, policy: CleanupPolicy, approved: Tally) -> Refusal | None:
    ceilings = policy.ceilings
    going = Tally(files=plan.candidates.files - approved.files, bytes=plan.candidates.bytes - approved.bytes)
    if going.files > ceilings.files:
        return _above("files", f"{going.files} files", f"ceilings.files = {ceilings.files}")
    if going.bytes > ceilings.bytes:
        return _above("bytes", f"{going.bytes} bytes ({units.size(going.bytes)})", f"ceilings.bytes = {ceilings.bytes}")
    known = _known_files(plan)
    if known >= ceilings.share_min_files and going.files > ceilings.share * known:
        share = going.files / known
        return _above("share", f"{share:.0%} of {known} listed files", f"ceilings.share = {ceilings.share:.0%}")
    return None


def _check_place(plan: OrphanPlan, approved: Tally, new_place: str | None) -> Refusal | None:
    """In a place that is new to a table, only what its own history names is proven to be its own."""
    unreferenced = plan.by_reason.get(Reason.UNREFERENCED, NOTHING).files
    if new_place is None or not unreferenced or plan.candidates.files <= approved.files:
        return None
    return Refusal(
        code=RefusalCode.CEILING_NEW_PLACE,
        reason=f"the table has not been cleaned at this location before ({new_place}), so {unreferenced} "
        "unreferenced files there may belong to something else: look at the saved plan; if they are the table's, "
        "`lakesweep approve RUN` allows the plan once and records the location as the table's own",
    )


def _known_files(plan: OrphanPlan) -> int:
    """What is listed; for a table that was not listed completely, what is referenced and what is to be deleted."""
    if not plan.listed:
        return plan.references + plan.candidates.files
    return sum(plan.verdicts.values(), Tally()).files


def _above(which: str, found: str, allowed: str) -> Refusal:
    return Refusal(
        code=RefusalCode(f"ceiling_{which}"),
        reason=f"the plan would delete {found}, above {allowed}: look at the saved plan; if it is right, "
        "`lakesweep approve RUN` allows it once, or raise the ceiling for this table",
    )


def _span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes >= 1 else f"{span.total_seconds():.0f} s"


def grace(policy: CleanupPolicy, state: TableState) -> timedelta:
    """The longest of the grace period, the format's own retention and, where a stream writes, what it may need."""
    return max(policy.grace_period, state.minimum_age, policy.stream_state if state.stream else timedelta(0))


def grace_sentence(policy: CleanupPolicy, state: TableState) -> str | None:
    """For people, where files wait for a stream's sake longer than the table's other rules ask for; None elsewhere."""
    if state.stream is None or policy.stream_state <= max(policy.grace_period, state.minimum_age):
        return None
    return (
        f"{state.stream} writes to this table, so unreferenced files stay for "
        f"{policy.stream_state / timedelta(hours=1):g} h (stream_state_hours): it may come back and commit them"
    )
