"""Check a plan before anything changes. The guards themselves are pure (`guards.py`); this module gathers what they
need.

The first guard that refuses decides. A plan above a ceiling may have been approved by a person; nothing else may.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from lakesweep.cleanup import guards, plan_file, table_notes, unlisted
from lakesweep.cleanup.approve import Approvals
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.model.errors import Refused, StorageError, Unreadable
from lakesweep.model.files import OrphanPlan
from lakesweep.model.location import Location
from lakesweep.model.refusal import RefusalCode, consequences
from lakesweep.model.run import Refusal
from lakesweep.model.trash import RunTrash
from lakesweep.ports.engine import Marked
from lakesweep.ports.state import PlanHeader, StateStore
from lakesweep.ports.surroundings import Neighbours
from lakesweep.ports.table import TableState

_SHARED_SINCE = "another table started to use files of this one during planning: the next cycle keeps them"
_SET_IT = "set orphan_cleanup.trash to a place outside every table"
_SWEEPS = 5
"""Sweeps of ours looked back on."""
_RUNS = 500
"""Runs looked through for them: between two sweeps there may be many that were refused or dry. As long as runs are
remembered at all, a table must not be refused for ever because of what its own sweep left."""
_PAGE = 50


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
) -> tuple[Refusal | None, bool]:
    """What the guards say, and whether the table's roots are proven to be its own."""
    state = marked.state
    users_unknown = await ports.surroundings.check_file_users(state)  # first: it remembers them, refused or not
    refusal = (
        early_refusal
        or await _check_neighbours(ports, state, neighbours)
        or users_unknown
        or guards.check_stayed(before_listing, state)
        or await table_notes.set_back(ports.state, state)
    )
    if refusal:
        return refusal, False
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
    refusal = refusal or await check_trash(context.trash, marked.state, neighbours)
    if refusal:
        raise Refused(refusal.code, refusal.reason)
    if not {path for paths in shared.values() for path in paths} <= set(marked.references.tolerated):
        raise Refused(RefusalCode.TABLE_CHANGED, _SHARED_SINCE)


async def _check_neighbours(ports: Ports, state: TableState, neighbours: Neighbours) -> Refusal | None:
    places = (place for where in neighbours.places.values() for place in where)
    identities = await ports.surroundings.identify((*state.roots, *places))
    return guards.check_neighbours(state, neighbours, identities)


async def _check_plan(
    ports: Ports, context: RunContext, orphans: OrphanPlan, marked: Marked, beside: frozenset[str] | None
) -> tuple[Refusal | None, bool]:
    state, policy = marked.state, context.policy
    foreign_owner = await _foreign_owner(ports, orphans, marked, beside)
    new_place = await table_notes.new_place(ports.state, state)
    place_is_own = new_place is None or (orphans.listed and table_notes.holds_only_its_own(orphans))
    refusal = guards.check_plan(orphans, state, policy, foreign_owner, new_place=new_place)
    if refusal and refusal.code == RefusalCode.MISSING_LIVE_FILES:
        refusal = replace(refusal, reason=refusal.reason + await _explain_missing(orphans.missing, state.roots))
    if refusal is None or not consequences(refusal.code).approvable:
        return refusal, place_is_own
    approvals = Approvals(state=ports.state, artifacts=ports.artifacts)
    label, now = ports.table.ref.label, ports.clock.now()
    approved = await approvals.covered(label, orphans, now)
    is_approved = state.goes_whole and await approvals.is_given(label, orphans.digest, now)
    refusal = guards.check_plan(
        orphans, state, policy, foreign_owner, approved, new_place=new_place, is_approved=is_approved
    )
    return refusal, place_is_own or refusal is None


async def _foreign_owner(
    ports: Ports, orphans: OrphanPlan, marked: Marked, beside: frozenset[str] | None
) -> str | None:
    """Evidence that another table lives in these roots. What an earlier sweep of ours began to delete is none."""
    metadata: Sequence[str] = orphans.unreferenced_metadata
    if beside is not None:
        metadata = await unlisted.unreferenced_metadata(
            ports.storage, marked.state, marked.references, metadata, beside
        )
    found = await marked.state.foreign_owner(metadata)
    if not found:
        return None
    begun = await _begun_metadata(ports.state, ports.artifacts, ports.table.ref.label, orphans)
    if not begun:
        return found
    return await marked.state.foreign_owner([path for path in metadata if path not in begun])


async def _explain_missing(missing: Sequence[str], roots: Iterable[Location]) -> str:
    """For local disks: the symbolic link on the way to a live file that was not listed, to be added to a refusal."""
    path = _local_path(missing[0]) if missing else None
    if path is None:
        return ""
    link = await asyncio.to_thread(_first_link, path, [one.path for one in roots])
    if link is None:
        return ""
    return f" ({link} is a symbolic link, which listings do not follow: move the files to where the table names them)"


def _local_path(text: str) -> Path | None:
    """Also None for a bare name: formats that match by name know no more of a file."""
    place = Location.parse_or_none(text)
    return Path(place.path) if place and place.is_local else None


def _first_link(path: Path, roots: Iterable[str]) -> Path | None:
    """The outermost link below the root that holds this path, the path itself included."""
    for root in roots:
        if path.is_relative_to(root):
            below = [*reversed(path.relative_to(root).parents), path.relative_to(root)]
            return next((Path(root) / part for part in below[1:] if (Path(root) / part).is_symlink()), None)
    return None


async def check_trash(trash: RunTrash | None, state: TableState, neighbours: Neighbours) -> Refusal | None:
    """Why files of this table cannot be moved to the trash, if so.

    It lies outside every table, so that no listing descends into it, and files get there by a rename or a copy inside
    the store: on a local disk on the same file system, by a way without links.
    """
    if trash is None:
        return None
    why = next(_trash_overlaps(trash.place, state, neighbours), None)
    if why is None and trash.place.is_local:
        try:
            why = await asyncio.to_thread(_why_not_there, trash.place, state.roots)
        except OSError as exc:
            why = f"the trash {trash.place} or the table cannot be looked at: {exc.filename}: {exc.strerror}"
    return Refusal(code=RefusalCode.TRASH_PLACE, reason=why) if why else None


def _trash_overlaps(place: Location, state: TableState, neighbours: Neighbours) -> Iterator[str]:
    for root in state.roots:
        if root.overlaps(place):
            wider = "or give a bare location a wider --root"
            yield f"the trash {place} overlaps the table's own {root}: {_SET_IT}, {wider}"
        if root.scheme != place.scheme:
            yield f"the trash {place} is in another store than the table's {root}: {_SET_IT} in the same store"
    for other, places in neighbours.places.items():
        for theirs in places:
            if theirs.contains(place) or theirs.as_directory() == place.as_directory() or place.contains(theirs):
                yield f"the trash {place} overlaps {other} ({theirs}): {_SET_IT}"


def _why_not_there(place: Location, roots: tuple[Location, ...]) -> str | None:
    path = place.path.rstrip("/") or "/"
    standing = next(one for one in (Path(path), *Path(path).parents) if one.exists())
    if os.path.realpath(standing) != str(standing):
        return f"the trash {place} is reached by a link: {_SET_IT} by its real path"
    device = standing.stat().st_dev
    for root in roots:
        there = Path(root.path)
        if there.exists() and there.stat().st_dev != device:
            return (
                f"the trash {place} and the table's {root} are on different file systems, and files are renamed, "
                "never copied: set orphan_cleanup.trash to a place on the same one"
            )
    return None


async def _begun_metadata(state: StateStore, artifacts: Artifacts, table: str, plan: OrphanPlan) -> frozenset[str]:
    """Metadata files of this plan that the plan of an earlier sweep names too: the same objects, not only paths.

    A sweep that ends half-way leaves gaps in the chain of a table's old metadata files, and the rest may look like
    another history. But it was checked when the chain was complete: the plan had passed every check.
    """
    found: set[str] = set()
    sweeps = 0
    async for header in _begun(state, table):
        found |= await _in_both_plans(artifacts, plan, header)
        sweeps += 1
        if sweeps >= _SWEEPS:
            break
    return frozenset(found)


async def _begun(state: StateStore, table: str) -> AsyncIterator[PlanHeader]:
    """Plans that began to delete, newest first."""
    before: str | None = None
    for _ in range(_RUNS // _PAGE):
        documents = await state.list_runs(table=table, before=before, limit=_PAGE)
        for document in documents:
            before = document["run_id"]
            header = await state.get_plan(before)
            if header is not None and await state.journal(before):
                yield header
        if len(documents) < _PAGE:
            return


async def _in_both_plans(artifacts: Artifacts, plan: OrphanPlan, earlier: PlanHeader) -> set[str]:
    """Nothing if the earlier plan is gone or has changed."""
    try:
        async with artifacts.opened(earlier.rows_path) as rows_path:
            return await asyncio.to_thread(lambda: set(_matched(plan.rows_path, rows_path, earlier.digest)))
    except (Unreadable, StorageError, OSError):
        return set()


def _matched(new_rows: str, begun_rows: str, digest: str) -> Iterator[str]:
    begun = plan_file.read_checked(begun_rows, digest)
    for rows, found in plan_file.look_up(plan_file.read_rows(new_rows), begun, "path"):
        wanted = pc.and_(pc.is_valid(found), pc.equal(rows.column("kind"), unlisted.METADATA))
        yield from rows.column("path").filter(wanted).to_pylist()
