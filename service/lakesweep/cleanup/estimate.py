"""Estimate how many requests a cycle that executes a plan sends, before anything changes.

Planning has cost its listing and its reading already, and that was counted. What is left:

    again     what other tables use is read once more
    commit    the table is read again twice; and once more by the sweep, since its head has moved
    sweep     one look at the table, and one for each request to delete; to the trash, on an object store, two looks
              at each object and its copy
    audit     two records for each batch, where the service keeps its files in an object store

How much a look at the table and a question to its neighbours take depends on format, catalog and lake, so they are
taken once and counted, if there is something to delete, and noted in the state store. A dry run counts them anew. An
estimate never fails a plan.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.run_context import Ports, RunContext
from lakesweep.cleanup.run_recorder import RunRecorder
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import Went
from lakesweep.model.requests import Expense, Requests
from lakesweep.ports.table import ClosesFirst, DetectsOtherCommits

if TYPE_CHECKING:
    from lakesweep.cleanup.plan import Planned

KEYS_PER_DELETE = 1000
"""What one request to delete may name."""
_READS_PER_EXPIRY = 3
_CLOSING = Requests(list=4, put=2)
"""Where history is closed first, its new beginning is published for other readers, then and at the end."""
_RECORDS_PER_BATCH = 2
_TO_TRASH = Requests(head=2, put=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of one plan. `load` is what reading the table took the last time."""

    ports: Ports
    context: RunContext
    recorder: RunRecorder
    plan: Planned
    load: Requests

    async def of_cycle(self) -> Expense:
        recorder = self.recorder
        planning, known = recorder.requests.so_far, recorder.requests.not_again
        changes = self.plan.orphans.candidates.files or not self.plan.expiry.empty
        try:
            ahead = await self._of_execution() if changes else Requests()
        except LakesweepError:
            ahead = Requests()  # the real checks run again, and report what is wrong
        seconds = recorder.elapsed_seconds
        # A dry run estimates the next cycle: that has in its cache what was read now, and need not find out what
        # the checks take.
        total = (recorder.requests.so_far if self.context.execute else planning - known) + ahead
        return recorder.priced(total, seconds * total.total / planning.total if planning.total else seconds)

    async def _of_execution(self) -> Requests:
        files = self.plan.orphans.candidates.files
        batches, deletes = await asyncio.to_thread(_cut, self.plan.orphans.rows_path, self.context.policy.batch_size)
        look, neighbours = await self._check_costs()
        ahead = neighbours + Requests(delete=deletes)
        if batches:
            ahead += look.times(deletes + 1)
        if not self.plan.expiry.empty:
            ahead += self.load.times(_READS_PER_EXPIRY)
            ahead += Requests() if isinstance(self.ports.table, DetectsOtherCommits) else look
            ahead += _CLOSING if isinstance(self.ports.table, ClosesFirst) else Requests(put=1)
        if self.recorder.run.will_stay is Went.TRASH and not self.context.tenant_root.is_local:
            # The source is deleted under conditions of its own, and the bucket is asked for its versions first.
            ahead += _TO_TRASH.times(files) + look.times(batches) + Requests(get=batches)
        if self.ports.artifacts.is_shared:
            ahead += Requests(put=_RECORDS_PER_BATCH * batches + 1 + (0 if self.plan.expiry.empty else 2))
        return ahead

    async def _check_costs(self) -> tuple[Requests, Requests]:
        """Of a look at the table and of a question to its neighbours, which a sweep repeats. Measured by doing it once,
        unless that is known and this run changes something."""
        name = f"asking:{self.ports.table.ref.label}"
        noted = await self.ports.state.recall(name) if self.context.execute else None
        if noted:
            with suppress(TypeError, KeyError, ValueError):  # another version's note: find out anew
                known = json.loads(noted)
                return Requests(**known["look"]), Requests(**known["neighbours"])
        look = await self._taken(self._look)
        neighbours = await self._taken(partial(self.ports.surroundings.shared_files, self.plan.marked.state))
        note = {"look": asdict(look), "neighbours": asdict(neighbours)}
        await self.ports.state.remember(name, json.dumps(note))
        return look, neighbours

    async def _taken(self, check: Callable[[], Awaitable[object]]) -> Requests:
        before = self.recorder.requests.so_far
        await check()
        return self.recorder.requests.so_far - before

    async def _look(self) -> None:
        table = self.ports.table
        if isinstance(table, DetectsOtherCommits):
            await table.has_other_commits()
        await table.head()


def _cut(rows_path: str, batch_size: int) -> tuple[int, int]:
    """Into how many batches and requests to delete, as the sweep cuts: by size, and at the border of every stage."""
    sizes: list[int] = []
    stages = pa.chunked_array([rows.column("stage") for rows in plan_file.read_rows(rows_path)], pa.int32())
    for first in range(0, len(stages), batch_size):
        sizes += pc.value_counts(stages.slice(first, batch_size)).field("counts").to_pylist()
    return len(sizes), sum(-(-files // KEYS_PER_DELETE) for files in sizes)
