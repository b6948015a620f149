"""The little deleting that formats may ask for, behind the gate of one tenant and one table: unpublished files, empty
directories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import structlog

from lakesweep.cleanup.delete_gate import GatedDeleter
from lakesweep.formats.spec import UnpublishedRemover
from lakesweep.model.errors import LakesweepError
from lakesweep.model.files import AgeBy
from lakesweep.model.location import Location
from lakesweep.ports.deleter import Deleter, DeleteStatus
from lakesweep.storage.local.walk import empty_directories

log = structlog.get_logger()


class GatedUnpublishedRemover(UnpublishedRemover):
    """Opens a deleter for each call and never raises: what is left behind is found again as an orphan.

    Without a table's roots the gate lets nothing through.
    """

    def __init__(
        self,
        open_deleter: Callable[[], Deleter],
        tenant_root: Location,
        table_roots: Sequence[Location] = (),
        age_by: AgeBy = AgeBy.CHANGE,
    ) -> None:
        self._open_deleter = open_deleter
        self._tenant_root = tenant_root
        self._table_roots = tuple(table_roots)
        self._age_by = age_by

    def within(self, roots: Sequence[Location]) -> GatedUnpublishedRemover:
        return GatedUnpublishedRemover(self._open_deleter, self._tenant_root, roots, self._age_by)

    async def remove_unpublished(self, paths: Sequence[str]) -> None:
        """Remove files that this process wrote just now and that nothing can refer to."""
        if not paths:
            return
        try:
            async with self._deleter() as deleter:
                outcomes = await deleter.delete(paths)
        except LakesweepError as exc:
            log.warning("unpublished_files_left", files=len(paths), why=str(exc))
            return
        failed = [outcome for outcome in outcomes if outcome.status is DeleteStatus.FAILED]
        if failed:
            log.warning("unpublished_files_left", files=len(failed), why=failed[0].why)

    async def empty_directories(self, root: Location, older_than: datetime) -> Sequence[str]:
        """Directories below `root` that hold no file and were not touched since; object stores have none."""
        if not root.is_local or not self._is_ours(root):
            return ()
        found = await asyncio.to_thread(empty_directories, root.path.rstrip("/"), older_than, self._age_by)
        return [Location("file", "", path).raw for path in found]

    async def remove_empty_directories(self, root: Location, directories: Sequence[str]) -> int:
        try:
            async with self._deleter() as deleter:
                return await deleter.remove_empty_directories(root, directories)
        except LakesweepError as exc:
            log.warning("empty_directories_left", directories=len(directories), why=str(exc))
            return 0

    def _is_ours(self, root: Location) -> bool:
        return _is_at_or_below(self._tenant_root, root) and any(_is_at_or_below(one, root) for one in self._table_roots)

    @asynccontextmanager
    async def _deleter(self) -> AsyncIterator[Deleter]:
        gate = GatedDeleter(self._open_deleter(), tenant_root=self._tenant_root, table_roots=self._table_roots)
        try:
            yield gate
        finally:
            await gate.aclose()


def _is_at_or_below(outer: Location, inner: Location) -> bool:
    outer, inner = outer.as_directory(), inner.as_directory()
    return outer == inner or outer.contains(inner)
