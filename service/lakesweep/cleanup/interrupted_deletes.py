"""Metadata files that an earlier sweep of ours had begun to delete. Reads saved plans, decides nothing.

A sweep that ends half-way leaves gaps in the chain of a table's old metadata files, and the rest may look like another
history. But it was checked when the chain was complete: the plan had passed every check.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pyarrow.compute as pc

from lakesweep.cleanup import plan_file, plan_match
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model.errors import StorageError, Unreadable
from lakesweep.model.files import OrphanPlan
from lakesweep.ports.state import PlanHeader, StateStore

_SWEEPS = 5
"""Sweeps looked back on."""
_RUNS = 500
"""Runs looked through for them: between two sweeps there may be many that were refused or dry. As long as runs are
remembered at all, a table must not be refused for ever because of what its own sweep left."""
_PAGE = 50
_METADATA = "metadata"


async def metadata_of(state: StateStore, artifacts: Artifacts, table: str, plan: OrphanPlan) -> frozenset[str]:
    """Metadata files of this plan that the plan of an earlier sweep names too: the same objects, not only paths."""
    found: set[str] = set()
    sweeps = 0
    async for header in _begun(state, table):
        found |= await _in_both(artifacts, plan, header)
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


async def _in_both(artifacts: Artifacts, plan: OrphanPlan, earlier: PlanHeader) -> set[str]:
    """None if the earlier plan is gone or has changed."""
    try:
        async with artifacts.opened(earlier.rows_path) as rows_path:
            return await asyncio.to_thread(lambda: set(_matched(plan.rows_path, rows_path, earlier.digest)))
    except (Unreadable, StorageError, OSError):
        return set()


def _matched(new_rows: str, begun_rows: str, digest: str) -> Iterator[str]:
    begun = plan_file.read_checked(begun_rows, digest)
    for rows, found in plan_match.look_up(plan_file.read_rows(new_rows), begun, "path"):
        wanted = pc.and_(pc.is_valid(found), pc.equal(rows.column("kind"), _METADATA))
        yield from rows.column("path").filter(wanted).to_pylist()
