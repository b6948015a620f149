"""Which Delta tables a location holds. The log is the truth: a table is where a `_delta_log` with a commit is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing

from lakesweep.cleanup.ports import Clock, Storage, Table
from lakesweep.formats.delta import names
from lakesweep.formats.delta.names import LogKind
from lakesweep.formats.delta.options import DeltaOptions
from lakesweep.formats.delta.table import DeltaTable
from lakesweep.formats.spec import DatasetSpec
from lakesweep.model.errors import SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef

_MARKER = f"/{names.LOG_DIRECTORY}/"
_HIDDEN = re.compile(r"/[_.]")
_HERE = "."
"""The name of a table at the dataset's location itself."""


class DeltaFormat:
    """The Delta tables at and below one location."""

    name = FormatName.DELTA

    def __init__(self, spec: DatasetSpec, storage: Storage, clock: Clock, options: DeltaOptions | None = None) -> None:
        if spec.location is None:
            raise SettingsError(f"{spec.tenant}/{spec.dataset}: a delta dataset needs a location")
        self._spec = spec
        self._location = spec.location
        self._storage = storage
        self._clock = clock
        self._options = options or DeltaOptions()

    async def tables(self) -> Sequence[TableRef]:
        """Every place with a log, at any depth but not in hidden directories. A table is called by its path below
        the location."""
        prefix = self._location.as_directory().raw
        found: set[str] = set()
        async with aclosing(self._storage.list(self._location)) as pages:
            async for page in pages:
                for path in page.column("path").to_pylist():
                    place, marker, relative = path[len(prefix) - 1 :].partition(_MARKER)
                    known = names.parse(relative).kind in (LogKind.COMMIT, LogKind.CHECKPOINT)
                    if marker and known and not _HIDDEN.search(place):
                        found.add(place.strip("/") or _HERE)
        return [self._ref(name) for name in sorted(found)]

    async def open(self, ref: TableRef) -> Table:
        """A handle for one cycle."""
        if ref.format is not self.name or (ref.tenant, ref.dataset) != (self._spec.tenant, self._spec.dataset):
            raise UnknownTable(f"{ref} is not a table of {self._spec.tenant}/{self._spec.dataset}")
        return DeltaTable(ref, self._root(ref), self._storage, self._clock, self._options)

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """A table's files are below its root."""
        return {ref: (self._root(ref).as_directory(),) for ref in await self.tables()}

    def _root(self, ref: TableRef) -> Location:
        return self._location if ref.name == _HERE else self._location.join(ref.name)

    def _ref(self, name: str) -> TableRef:
        return TableRef(tenant=self._spec.tenant, dataset=self._spec.dataset, name=name, format=self.name)
