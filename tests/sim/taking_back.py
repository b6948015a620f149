"""Take a run back that moved files to the trash, as `lakesweep restore` does it.

Of a run that took other files too, snapshot and log files are not asked for. A run that took nothing else is taken back
as a whole. `tests/flow/test_restore_entries.py` has what becomes of such files.
"""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Sequence
from datetime import timedelta

from tests.sim.mover import SimMover
from tests.sim.ports import SimState, SimStorage
from tests.sim.product import AlwaysOurs, Runner, table_ref, trail, trash_of

from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.cleanup.restore import Restore
from lakesweep.cleanup.restore_finder import Finder, Taken
from lakesweep.model.location import Location
from lakesweep.model.run import CleanupRun, Restored


async def files_of(runner: Runner, run_id: str) -> list[str]:
    """What the run was to take, without what readers enter the table by."""
    header = await runner.store.get_plan(run_id)
    rows = await Artifacts(runner.scratch).page(header.rows_path, 0, header.candidates)
    return [row.path for row in rows if row.stage >= 0]


async def take_back(runner: Runner, run_id: str, paths: Sequence[str]) -> Restored:
    """One restore of these files. What kills the process gets out of here."""
    runner.runs += 1
    process, model, new_id = runner.process, runner.model, runner.run_id
    state, ref = SimState(runner.store, process), table_ref(runner.model)
    await state.start_run(
        CleanupRun(id=new_id, table=ref, location=None, started_at=process.now(), restored=Restored(of=run_id))
    )
    taken = Taken(
        run_id=run_id,
        root=Location.parse(model.tenant_root),
        plan=await state.get_plan(run_id),
        batches=await state.journal(run_id),
        trash=trash_of(model, run_id),
        markers={},
    )
    finder = Finder(
        taken=taken,
        patterns=[glob.escape(path) for path in paths],
        storage=SimStorage(process),
        artifacts=Artifacts(runner.scratch),
    )

    async def note(_: Restored) -> None:
        return None

    lease = await runner.store.acquire_lease(ref.label, process.name, timedelta(days=3650))
    restore = Restore(
        run_id=new_id,
        finder=finder,
        mover=SimMover(process),
        journal=state,
        audit=trail(process, state, ref.label, new_id),
        fence=AlwaysOurs(lease.token),
        stop=asyncio.Event(),
        note=note,
    )
    try:
        return await restore.run()
    finally:
        await runner.store.release_lease(lease)
