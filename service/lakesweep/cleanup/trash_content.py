"""What is in a trash, run by run, and until when it stays. Reads only.

Only what a plan of ours names is ours, below the directory of the run that made it; everything else in a trash is
somebody else's and stays. A run's files stay for `trash_hours` from the *end of the run*: by then every one of them had
been moved, whatever the times of the files themselves say, and the run's own record has it. The store's time of each
object must be as old, too: on S3 that is when it was copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakesweep.cleanup import plan_file
from lakesweep.cleanup.artifacts import Artifacts
from lakesweep.model import run_document
from lakesweep.model.errors import StorageError, Unreadable
from lakesweep.model.files import Tally
from lakesweep.model.location import Location
from lakesweep.model.table import BARE_TENANT
from lakesweep.model.trash import RunTrash
from lakesweep.ports.state import StateStore
from lakesweep.ports.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInTrash:
    """What one directory of a trash is."""

    name: str
    trash: RunTrash | None = None
    """None if it is not the directory of a run of ours that is known."""
    document: run_document.Run | None = None
    until: datetime | None = None
    """None while it is unknown, also while the run is under way."""


@dataclass(frozen=True, kw_only=True)
class TrashContent:
    """One tenant's trash in one place."""

    place: Location
    tenant: str
    storage: Storage
    state: StateStore
    artifacts: Artifacts
    hours: Callable[[run_document.Run], timedelta]

    async def runs(self) -> AsyncIterator[RunInTrash]:
        for name in await self.storage.directories(self.place):
            yield await self._one(name)

    async def listed(self, run: RunInTrash) -> AsyncIterator[pa.RecordBatch]:
        async with aclosing(self.storage.list(self.place.join(run.name))) as batches:
            async for batch in batches:
                yield batch

    async def ours(self, run: RunInTrash) -> AsyncIterator[pa.RecordBatch]:
        """The same, of what the run's own plan names. Nothing where the plan is gone: then nothing proves it."""
        planned = await self._planned(run)
        if planned is None or run.trash is None:
            return
        here, home = run.trash.directory.raw, run.trash.root.as_directory().raw
        async for batch in self.listed(run):
            relative = pc.utf8_slice_codeunits(batch.column("path"), start=len(here))
            found = pc.is_in(pc.binary_join_element_wise(home, relative, ""), value_set=planned)
            if pc.any(found).as_py():
                yield batch.filter(found)

    async def tally(self, run: RunInTrash) -> Tally:
        total = Tally()
        async for batch in self.listed(run):
            size = pc.sum(batch.column("size_bytes"), min_count=0).as_py()
            total += Tally(files=batch.num_rows, bytes=size)
        return total

    async def _one(self, name: str) -> RunInTrash:
        document = await self.state.get_run(name)
        if document is None or document["trash"] is None:
            return RunInTrash(name=name)
        place, root = Location.parse(document["trash"]["place"]), Location.parse(document["trash"]["root"])
        own = document["table"].partition("/")[0] in (self.tenant, BARE_TENANT)  # or of a bare location in its root
        if place.as_directory() != self.place.as_directory() or not own:
            return RunInTrash(name=name)
        ended = document["finished_at"]
        ended_at = datetime.fromisoformat(ended) if ended and document["outcome"] is not None else None
        return RunInTrash(
            name=name,
            trash=RunTrash(place=place, root=root, run_id=name),
            document=document,
            until=ended_at + self.hours(document) if ended_at else None,
        )

    async def _planned(self, run: RunInTrash) -> pa.Array | None:
        header = await self.state.get_plan(run.name)
        if header is None:
            return None
        try:
            async with self.artifacts.opened(header.rows_path) as rows_path:
                return await asyncio.to_thread(_paths, rows_path, header.digest)
        except (Unreadable, StorageError, OSError):
            return None


def _paths(rows_path: str, digest: str) -> pa.Array:
    columns = [batch.column("path") for batch in plan_file.read_checked(rows_path, digest)]
    return pa.concat_arrays(columns) if columns else pa.array([], pa.string())
