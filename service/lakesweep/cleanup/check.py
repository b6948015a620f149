"""Check a plan before anything changes. The guards themselves are pure (`guards.py`); this module gathers what they
need.

The first guard that refuses decides. A plan above a ceiling may have been approved by a person; nothing else may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakesweep.cleanup import explain_missing, foreign_metadata, guards, interrupted_deletes, trash_place
from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.known_roots import KnownRoots, holds_only_its_own
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.model.errors import Refused
from lakesweep.model.files import OrphanPlan
from lakesweep.model.refusal import consequences
from lakesweep.model.run import Refusal
from lakesweep.ports.engine import Marked
from lakesweep.ports.surroundings import Neighbours
from lakesweep.ports.table import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the guards said."""

    refusal: Refusal | None
    place_is_own: bool = False
    """Are the table's roots proven to be its own?"""


async def check(
    ports: Ports,
    context: RunContext,
    *,
    orphans: OrphanPlan,
    marked: Marked,
    neighbours: Neighbours,
    early_refusal: Refusal | None,
    before_listing: TableState,
    beside: frozenset[str] | None,
) -> Checked:
    """All guards between a plan and the first change."""
    state = marked.state
    users_unknown = await ports.surroundings.check_file_users(state)  # first: it remembers them, refused or not
    refusal = (
        early_refusal
        or await _check_neighbours(ports, state, neighbours)
        or users_unknown
        or guards.check_stayed(before_listing, state)
        or await KnownRoots(store=ports.state).set_back(state)
    )
    if refusal:
        return Checked(refusal=refusal)
    return await _check_plan(ports, context, orphans, marked, beside)


async def check_again(ports: Ports, context: RunContext, marked: Marked) -> None:
    """Check again what may have changed outside this cycle: planning may have taken hours. Raises Refused."""
    if refusal := await ports.surroundings.check_clock(context.policy.max_clock_skew):
        raise Refused(refusal.code, refusal.reason)
    await ports.surroundings.check_not_held()
    shared = await ports.surroundings.shared_files(marked.state)  # first: reading may find a problem with a neighbour
    neighbours = await ports.surroundings.neighbours()
    refusal = await _check_neighbours(ports, marked.state, neighbours)
    refusal = refusal or await ports.surroundings.check_file_users(marked.state)
    refusal = refusal or await trash_place.check(context.trash, marked.state, neighbours)
    if refusal:
        raise Refused(refusal.code, refusal.reason)
    if not {path for paths in shared.values() for path in paths} <= set(marked.references.tolerated):
        raise Refused("table_changed", _SHARED_SINCE)


async def _check_neighbours(ports: Ports, state: TableState, neighbours: Neighbours) -> Refusal | None:
    places = (place for where in neighbours.places.values() for place in where)
    identities = await ports.surroundings.identify((*state.roots, *places))
    return guards.check_neighbours(state, neighbours, identities)


async def _check_plan(
    ports: Ports, context: RunContext, orphans: OrphanPlan, marked: Marked, beside: frozenset[str] | None
) -> Checked:
    state, policy = marked.state, context.policy
    foreign_owner = await _foreign_owner(ports, orphans, marked, beside)
    new_place = await KnownRoots(store=ports.state).new_place(state)
    place_is_own = new_place is None or (orphans.listed and holds_only_its_own(orphans))
    refusal = guards.check_plan(orphans, state, policy, foreign_owner, new_place=new_place)
    if refusal and refusal.code == "missing_live_files":
        refusal = replace(refusal, reason=refusal.reason + await explain_missing.explain(orphans.missing, state.roots))
    if refusal is None or not consequences(refusal.code).approvable:
        return Checked(refusal=refusal, place_is_own=place_is_own)
    approvals = Approvals(state=ports.state, artifacts=ports.artifacts)
    label, now = ports.table.ref.label, ports.clock.now()
    approved = await approvals.covered(label, orphans, now)
    is_approved = state.goes_whole and await approvals.is_given(label, orphans.digest, now)
    refusal = guards.check_plan(
        orphans, state, policy, foreign_owner, approved, new_place=new_place, is_approved=is_approved
    )
    return Checked(refusal=refusal, place_is_own=place_is_own or refusal is None)


async def _foreign_owner(
    ports: Ports, orphans: OrphanPlan, marked: Marked, beside: frozenset[str] | None
) -> str | None:
    """Evidence that another table lives in these roots. Files that an earlier sweep of ours began to delete do not
    count."""
    metadata: Sequence[str] = orphans.unreferenced_metadata
    if beside is not None:
        metadata = await foreign_metadata.unreferenced(ports.storage, marked.state, marked.references, metadata, beside)
    found = await marked.state.foreign_owner(metadata)
    if not found:
        return None
    begun = await interrupted_deletes.metadata_of(ports.state, ports.artifacts, ports.table.ref.label, orphans)
    if not begun:
        return found
    return await marked.state.foreign_owner([path for path in metadata if path not in begun])


_SHARED_SINCE = "another table started to use files of this one during planning: the next cycle keeps them"
