"""Which Delta tables a location holds. The log is the truth: a table is where a `_delta_log` with a commit is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from lakesweep.aio import gather_bounded
from lakesweep.formats.delta import decode, names
from lakesweep.formats.delta.names import LogKind
from lakesweep.formats.delta.table import DeltaOptions, DeltaTable, VacuumMode
from lakesweep.formats.spec import DatasetSpec, LeaveAll, Tidy, Tools
from lakesweep.model.errors import SettingsError, UnknownTable
from lakesweep.model.location import Location
from lakesweep.model.table import FormatName, TableRef
from lakesweep.ports.clock import Clock
from lakesweep.ports.references import Decode
from lakesweep.ports.storage import KnownContents, Storage
from lakesweep.ports.table import Table

_HIDDEN = ("_", ".")
_MAKE_A_TABLE = frozenset({LogKind.COMMIT, LogKind.CHECKPOINT})
_HERE = "."
"""The name of a table at the dataset's location itself."""


class DeltaFormat:
    """The Delta tables at and below one location."""

    name = FormatName.DELTA

    def __init__(
        self,
        spec: DatasetSpec,
        storage: Storage,
        clock: Clock,
        options: DeltaOptions | None = None,
        *,
        tidy: Tidy | None = None,
        contents: KnownContents | None = None,
    ) -> None:
        if spec.location is None:
            raise SettingsError(f"{spec.tenant}/{spec.dataset}: a delta dataset needs a location")
        self._spec = spec
        self._location = spec.location
        self._storage = storage
        self._clock = clock
        self._options = options or DeltaOptions()
        self._tidy = tidy or LeaveAll()
        self._contents = contents

    async def tables(self) -> Sequence[TableRef]:
        """Every place with a log, at any depth but not in hidden directories. A table is called by its path below the
        location. Everything inside a table belongs to it: no further tables are looked for there."""
        found: list[str] = []
        level = [""]
        while level:
            inside = await gather_bounded(level, self._look)
            found += [place for place, below in zip(level, inside, strict=True) if below is None]
            level = [name for below in inside if below is not None for name in below]
        return [self._ref(name or _HERE) for name in sorted(found)]

    async def _look(self, place: str) -> list[str] | None:
        """The places below that may be tables; None if this one is a table itself."""
        location = self._location.join(place) if place else self._location
        names_below = await self._storage.directories(location)
        if names.LOG_DIRECTORY in names_below and await self._has_commits(location.join(names.LOG_DIRECTORY)):
            return None
        return [f"{place}/{name}".lstrip("/") for name in names_below if not name.startswith(_HIDDEN)]

    async def _has_commits(self, log: Location) -> bool:
        prefix = log.as_directory().raw
        async with aclosing(self._storage.list(log)) as pages:
            async for page in pages:
                kinds = {names.parse(path[len(prefix) :]).kind for path in page.column("path").to_pylist()}
                if kinds & _MAKE_A_TABLE:
                    return True
        return False

    async def open(self, ref: TableRef) -> Table:
        if ref.format is not self.name or (ref.tenant, ref.dataset) != (self._spec.tenant, self._spec.dataset):
            raise UnknownTable(f"{ref} is not a table of {self._spec.tenant}/{self._spec.dataset}")
        return DeltaTable(
            ref,
            self._root(ref),
            self._storage,
            self._clock,
            self._options,
            tidy=self._tidy,
            contents=self._contents,
        )

    async def locations(self) -> dict[TableRef, tuple[Location, ...]]:
        """A table's files are below its root."""
        return {ref: (self._root(ref).as_directory(),) for ref in await self.tables()}

    def _root(self, ref: TableRef) -> Location:
        return self._location if ref.name == _HERE else self._location.join(ref.name)

    def _ref(self, name: str) -> TableRef:
        return TableRef(tenant=self._spec.tenant, dataset=self._spec.dataset, name=name, format=self.name)


def open_dataset(spec: DatasetSpec, tools: Tools) -> DeltaFormat:
    options = DeltaOptions(vacuum_mode=VacuumMode(spec.vacuum_mode), has_shallow_clones=spec.has_shallow_clones)
    return DeltaFormat(spec, tools.storage, tools.clock, options, tidy=tools.tidy, contents=tools.contents)


def open_table(ref: TableRef, place: Location, root: Location, tools: Tools) -> DeltaTable:  # noqa: ARG001
    """A table owns nothing outside of its directory, whatever its root."""
    return DeltaTable(ref, place, tools.storage, tools.clock, tidy=tools.tidy, contents=tools.contents)


def decoder() -> Decode:
    return decode.decode
