"""Which Delta tables a location holds. The log is the truth: a table is where a `_delta_log` with a commit is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakesweep.aio import gather_bounded
from lakesweep.formats import reads
from lakesweep.formats.delta import checkpoint, log
from lakesweep.formats.delta.table import DeltaOptions, DeltaTable, VacuumMode
from lakesweep.formats.spec import DatasetSpec, Tools
from lakesweep.model.errors import SettingsError
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.references import Decode
from lakesweep.ports.table import Table

_HIDDEN = ("_", ".")
_MAKE_A_TABLE = frozenset({log.LogKind.COMMIT, log.LogKind.CHECKPOINT})
_HERE = "."
"""The name of a table at the dataset's location itself."""


class DeltaFormat:
    """The Delta tables at and below one location."""

    name = FormatName.DELTA

    def __init__(self, spec: DatasetSpec, tools: Tools) -> None:
        if spec.location is None:
            raise SettingsError(f"{spec.tenant}/{spec.dataset}: a delta dataset needs a location")
        self._spec = spec
        self._location = spec.location
        self._storage = tools.storage
        self._tools = tools
        mode, cloned = VacuumMode(spec.vacuum_mode), spec.has_shallow_clones
        self._options = DeltaOptions(vacuum_mode=mode, has_shallow_clones=cloned)

    async def tables(self) -> Sequence[TableRef]:
        """Every place with a log, at any depth but not in hidden directories. A table is called by its path below the
        location. Everything inside a table belongs to it: no further tables are looked for there."""
        found: list[str] = []
        level = [""]
        while level:
            inside = await gather_bounded(level, self._look)
            found += [place for place, below in zip(level, inside, strict=True) if below is None]
            level = [name for below in inside if below is not None for name in below]
        return [self._spec.ref(name or _HERE) for name in sorted(found)]

    async def _look(self, place: str) -> list[str] | None:
        """The places below that may be tables; None if this one is a table itself."""
        location = self._location.join(place) if place else self._location
        names_below = await self._storage.directories(location)
        if log.LOG_DIRECTORY in names_below and await self._has_commits(location.join(log.LOG_DIRECTORY)):
            return None
        return [f"{place}/{name}".lstrip("/") for name in names_below if not name.startswith(_HIDDEN)]

    async def _has_commits(self, place: Location) -> bool:
        cut = len(place.as_directory().raw)

        def has_commits(page: pa.RecordBatch) -> bool:
            kinds = {log.parse_name(path[cut:]).kind for path in page.column("path").to_pylist()}
            return not kinds.isdisjoint(_MAKE_A_TABLE)

        return await reads.any_page(self._storage, place, has_commits)

    async def open(self, ref: TableRef) -> Table:
        self._spec.check_own(ref)
        return _table(ref, self._root(ref), self._tools, self._options)

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        return {ref: (self._root(ref).as_directory(),) for ref in await self.tables()}

    def _root(self, ref: TableRef) -> Location:
        return self._location if ref.name == _HERE else self._location.join(ref.name)


open_dataset = DeltaFormat


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> DeltaTable:  # noqa: ARG001
    """A table owns nothing outside of its directory, whatever its root."""
    return _table(ref, place, tools, DeltaOptions())


def _table(ref: TableRef, root: Location, tools: Tools, options: DeltaOptions) -> DeltaTable:
    return DeltaTable(ref, root, tools.storage, tools.clock, options, remover=tools.remover, contents=tools.contents)


def decoder() -> Decode:
    return checkpoint.decode
